"""The memory and the time of a run in words, for the Train page and for ``plan``; :mod:`rlhf_studio.inputs.estimate` computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config.io import walk_fields
from rlhf_studio.config.recipes import Recipe
from rlhf_studio.inputs.estimate.memory.parts import HELP, MemoryPart
from rlhf_studio.inputs.estimate.memory.savings import MemorySaving
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate
from rlhf_studio.inputs.estimate.speed import SpeedMeasurement
from rlhf_studio.inputs.preflight import Preflight
from rlhf_studio.inputs.preflight.seconds import seconds_by_rate
from rlhf_studio.runs.pace import Pace, known_pace, slowness
from rlhf_studio.ui.outlook import recipe_minutes
from rlhf_studio.units import duration, format_byte_range, format_bytes, short_count

Json = dict[str, Any]


def memory_view(memory: MemoryEstimate, change: MemorySaving | None) -> Json:
    """The table of parts, the total against what is free, and advice when it may not fit."""
    device = memory.device
    total = memory.unknown if memory.low is None or memory.high is None else format_byte_range(memory.low, memory.high)
    free = "" if device.free is None else f"{format_bytes(device.free)} free" + (f" on {device.name}" if device.kind == "cuda" else "")
    state = "unknown" if memory.fits is None else "fits" if memory.fits else "too_large" if memory.too_large else "tight"
    return {
        "rows": [{"name": part.name, "parameters": _count(part), "size": _bytes(part), "help": HELP[part.name]} for part in memory.parts],
        "total": total[:1].upper() + total[1:],
        "free": free,
        "state": state,
        "advice": _advice(state, change),
    }


def _advice(state: str, change: MemorySaving | None) -> str:
    if state not in ("tight", "too_large"):
        return ""
    start = "This may not fit." if state == "tight" else "This does not fit."
    if change is None:
        return f"{start} No single change is enough: use a smaller model, or several changes together."
    titles = {name: field.title or name for name, field in walk_fields()}
    value = {"true": "on", "false": "off"}.get(change.value, change.value)
    return f"{start} Cheapest change that fits: {titles[change.setting]} {value} saves {format_bytes(change.saves)} ({change.price})."


def _count(part: MemoryPart) -> str:
    if part.parameters is None:
        return "unknown" if part.low is None else ""
    return short_count(part.parameters) if part.parameters else "–"


def _bytes(part: MemoryPart) -> str:
    return "unknown" if part.low is None or part.high is None else format_byte_range(part.low, part.high)


def slower_here(root: Path, config: StageConfig, recipes: Mapping[str, Recipe]) -> float | None:
    """How many times as long as in the recipes a run takes on this machine, measured by its newest run; None when no run can tell."""

    def expected(earlier: RunConfig) -> float | None:
        recipe = recipes.get(earlier.recipe)
        return None if recipe is None else recipe_minutes(earlier, recipe)

    return slowness(root, expected, config)


def whole_time(
    config: StageConfig, report: Preflight | None, recipe: Recipe, root: Path, recipes: Mapping[str, Recipe], speed: SpeedMeasurement
) -> dict[str, str] | None:
    """The time of the whole run: as on the recipe's card; else, with a ``report``, from an earlier run or this machine's measured rate.

    None where nobody can tell.
    """
    timed = recipe_row(config, recipe, slower_here(root, config, recipes))
    if timed or report is None or not isinstance(config, RunConfig):
        return timed
    pace = known_pace(root, config)
    return time_row(config.ppo.steps, pace, None if pace else seconds_by_rate(config, report, speed.rate))


def recipe_row(config: StageConfig, recipe: Recipe, slower: float | None) -> dict[str, str] | None:
    """The expected time by the recipe's measured time, ``slower`` times as long on this machine; None when nobody measured the recipe."""
    minutes = recipe_minutes(config, recipe)
    if minutes is None:
        return None
    if slower is None:
        return {"label": "Time", "value": f"about {duration(60 * minutes)}", "help": "On two CPU cores; less on a GPU."}
    each = f"{duration(60 * slower * minutes / config.ppo.steps)} a round, going" if isinstance(config, RunConfig) else "Going"
    return {"label": "Time", "value": f"about {duration(60 * slower * minutes)} on this machine", "help": f"{each} by the newest run here."}


def time_of_another(config: RunConfig, root: Path, recipes: Mapping[str, Recipe]) -> str:
    """How long one more run with these settings takes, as the Train page says it; empty where neither recipe nor earlier run tells."""
    recipe = recipes.get(config.recipe)
    timed = recipe_row(config, recipe, slower_here(root, config, recipes)) if recipe else None
    timed = timed or time_row(config.ppo.steps, known_pace(root, config), None)
    return timed["value"] if timed else ""


def time_row(steps: int, pace: Pace | None, estimate: tuple[float, float] | None) -> dict[str, str] | None:
    """How long the whole run takes on this machine: from an earlier run, else from its measured rate; None when neither is known."""
    if pace is not None:
        source = "measured in an earlier run with these settings" if pace.exact else "scaled from an earlier run of the same models"
        value, each = f"about {duration(pace.seconds * steps)} on this machine", duration(pace.seconds)
    elif estimate is not None:
        source = "from this machine's measured matrix rate: rough, a first run tells better"
        low, high = estimate
        value = f"{duration(low * steps)} to {duration(high * steps)} on this machine"
        each = f"{duration(low)} to {duration(high)}"
    else:
        return None
    return {"label": "Time", "value": value, "help": f"{each} a round, {source}."}
