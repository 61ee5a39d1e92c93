"""The memory and the time of a run in words, for the Train page and for ``plan``; :mod:`rlhf_studio.inputs.estimate` computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config.io import walk_fields
from rlhf_studio.config.recipes import Recipe
from rlhf_studio.inputs.estimate.memory.parts import HELP, MemoryPart
from rlhf_studio.inputs.estimate.memory.savings import MemorySaving
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate
from rlhf_studio.inputs.estimate.speed import SpeedMeasurement
from rlhf_studio.inputs.preflight import Preflight
from rlhf_studio.inputs.preflight.seconds import seconds_by_rate
from rlhf_studio.language import N_, _, together
from rlhf_studio.runs.pace import known_pace, slowness, whole_seconds
from rlhf_studio.ui.outlook import recipe_minutes, unknown_time
from rlhf_studio.units import duration, format_byte_range, format_bytes, short_count, span

Json = dict[str, Any]


def memory_view(memory: MemoryEstimate, change: MemorySaving | None) -> Json:
    """The table of parts, the total against what is free, and advice when it may not fit."""
    device = memory.device
    total = memory.unknown if memory.low is None or memory.high is None else format_byte_range(memory.low, memory.high)
    free = "" if device.free is None else _("{bytes} free").format(bytes=format_bytes(device.free))
    if free and device.kind == "cuda":
        free = _("{free} on {device}").format(free=free, device=device.name)
    state = "unknown" if memory.fits is None else "fits" if memory.fits else "too_large" if memory.too_large else "tight"
    return {
        "rows": [
            {"name": _(part.name), "parameters": _count(part), "size": _bytes(part), "help": _(HELP[part.name])} for part in memory.parts
        ],
        "total": total[:1].upper() + total[1:],
        "free": free,
        "state": state,
        "advice": _advice(state, change),
    }


def _row(part: MemoryPart) -> dict[str, str]:
    return {"name": _(part.name), "parameters": _count(part), "size": _bytes(part), "help": _(HELP[part.name])}


def _advice(state: str, change: MemorySaving | None) -> str:
    if state not in ("tight", "too_large"):
        return ""
    start = _("This may not fit.") if state == "tight" else _("This does not fit.")
    if change is None:
        return together(start, _("No single change is enough: use a smaller model, or several changes together."))
    titles = {name: field.title or name for name, field in walk_fields()}
    value = {"true": _("on"), "false": _("off")}.get(change.value, change.value)
    cheapest = _("Cheapest change that fits: {title} {value} saves {saves} ({price}).")
    saves = format_bytes(change.saves)
    return together(start, cheapest.format(title=_(titles[change.setting]), value=value, saves=saves, price=_(change.price)))


def _count(part: MemoryPart) -> str:
    if part.parameters is None:
        return _("unknown") if part.low is None else ""
    return short_count(part.parameters) if part.parameters else "–"


def _bytes(part: MemoryPart) -> str:
    return _("unknown") if part.low is None or part.high is None else format_byte_range(part.low, part.high)


# --- time -------------------------------------------------------------------------------------------------------------------------

Source = Literal["recipe", "newest runs", "earlier run", "other sizes", "rate"]
_HELP: dict[Source, str] = {
    "recipe": N_("On two CPU cores; less on a GPU."),
    "newest runs": N_("going by the newest run here."),
    "earlier run": N_("measured in an earlier run with these settings."),
    "other sizes": N_("scaled from an earlier run of the same models."),
    "rate": N_("from this machine's measured matrix rate: rough, a first run tells better."),
}


@dataclass(frozen=True)
class Estimate:
    """How long a whole run takes, as far as anybody can tell before its first step.

    From then on its own steps tell (:func:`rlhf_studio.runs.pace.step_seconds`).

    Attributes:
        low, high: seconds; the same where a run was timed.
        source: what they rest on: the time that the recipe took elsewhere, or the same as the newest runs here scale it; an earlier run
            with these settings, or with other sizes; or the machine's rate alone.
        steps: how many there are; 0 where that is not known before the data has been read.
    """

    low: float
    high: float
    source: Source
    steps: int = 0

    @property
    def text(self) -> str:
        """The time in words, and whether it is this machine's."""
        exact = self.low == self.high
        time = _("about {time}").format(time=duration(self.low)) if exact else span(duration(self.low), duration(self.high))
        return time if self.source == "recipe" else _("{time} on this machine").format(time=time)

    @property
    def row(self) -> dict[str, str]:
        """As label, value and help."""
        ends = [self.low] if self.low == self.high else [self.low, self.high]
        text = _(_HELP[self.source])
        if self.steps and self.source != "recipe":
            each = [duration(end / self.steps) for end in ends]
            text = _("{time} a round, {source}").format(time=span(*each) if len(each) > 1 else each[0], source=text)
        return {"label": _("Time"), "value": self.text, "help": text[:1].upper() + text[1:]}


def estimate(
    config: StageConfig,
    root: Path,
    recipes: Mapping[str, Recipe],
    recipe: Recipe | None = None,
    *,
    earlier: bool = True,
    rate: Callable[[], tuple[float, float] | None] = lambda: None,
) -> Estimate | None:
    """How long a run takes from its first step to its last, for whoever says it before it starts; None where nobody can tell.

    Args:
        root: the workspace, whose runs tell how fast this machine is.
        recipe: the one that the settings came from; without it, the one that they name.
        earlier: whether earlier runs of the same models may tell, where no recipe does.
        rate: gives seconds of a step, at least and at most, where no run tells.
    """
    recipe = recipe or recipes.get(config.recipe)
    steps = config.ppo.steps if isinstance(config, RunConfig) else 0
    whole = None if steps else whole_seconds(root, config)
    if whole is not None:
        return Estimate(whole, whole, "earlier run")
    minutes = recipe_minutes(config, recipe) if recipe else None
    if minutes is not None:
        slower = _slower_here(root, config, recipes)
        seconds = 60 * minutes * (slower or 1)
        return Estimate(seconds, seconds, "newest runs" if slower else "recipe", steps)
    if not steps or not earlier:
        return None
    if pace := known_pace(root, config):
        return Estimate(pace.seconds * steps, pace.seconds * steps, "earlier run" if pace.exact else "other sizes", steps)
    low_high = rate()
    return Estimate(low_high[0] * steps, low_high[1] * steps, "rate", steps) if low_high else None


def _slower_here(root: Path, config: StageConfig, recipes: Mapping[str, Recipe]) -> float | None:
    """How many times as long as in the recipes a run takes on this machine, measured by its newest run; None when no run can tell."""

    def expected(earlier: RunConfig) -> float | None:
        recipe = recipes.get(earlier.recipe)
        return None if recipe is None else recipe_minutes(earlier, recipe)

    return slowness(root, expected, config)


def whole_time(
    config: StageConfig, report: Preflight | None, recipe: Recipe, root: Path, recipes: Mapping[str, Recipe], speed: SpeedMeasurement
) -> dict[str, str]:
    """The :func:`estimate` of a run as label, value and help. Without a ``report``, the check of the machine, the recipe alone tells."""

    def rate() -> tuple[float, float] | None:
        return seconds_by_rate(config, report, speed.rate) if isinstance(config, RunConfig) and report is not None else None

    known = estimate(config, root, recipes, recipe, earlier=report is not None, rate=rate)
    return known.row if known else unknown_time(config)
