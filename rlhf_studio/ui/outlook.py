"""What a run is going to do, shown before it starts: one plain sentence and the few figures that matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlhf_studio.analysis.doctor import examine_settings
from rlhf_studio.analysis.records import Finding
from rlhf_studio.config import STAGES, RunConfig, short_name
from rlhf_studio.config_io import walk_fields
from rlhf_studio.estimate.scaled_time import scaled_minutes
from rlhf_studio.preflight import Preflight
from rlhf_studio.recipes import Recipe
from rlhf_studio.units import format_bytes

UNKNOWN_TIME = {"label": "Time", "value": "known after the first round", "help": "It depends on the model and the machine."}


def sentence(config: RunConfig, recipe: Recipe) -> str:
    """What will happen, in plain words that need no knowledge of PPO."""
    ppo = config.ppo
    learner = short_name(config.model.policy) + (f", with LoRA adapters of rank {config.lora.r}," if config.lora.enabled else "")
    writes = recipe.writes if config.model.policy == recipe.config.model.policy else "responses"
    return (
        f"The model {learner} writes {grouped(ppo.batch_size)} {writes}, {_judges(config)} each, and what scored high becomes likelier. "
        f"{count(ppo.steps, 'round', 'rounds')}, {grouped(ppo.steps * ppo.batch_size)} {writes} in all."
    )


def watch(config: RunConfig, recipe: Recipe) -> str:
    """Why it is worth watching; empty where the models are not the recipe's."""
    same = config.model.policy == recipe.config.model.policy and config.reward.components == recipe.config.reward.components
    return recipe.watch if same else ""


def risks(config: RunConfig) -> list[dict[str, Any]]:
    """The settings that are likely to spoil the run, the gravest first; the run may start with them all the same.

    Each has ``level``, ``title``, ``cause``, ``rule`` (when this is said), ``advice``, ``field`` (the setting to look at), ``changes``
    (settings that would cure it, empty where only a person can tell) and ``use``, the words of the button that puts them in.
    """
    return [_risk(finding) for finding in examine_settings(config)]


def _risk(finding: Finding) -> dict[str, Any]:
    blamed = next(iter(finding.changes), "") or finding.evidence[0].text.split(" ")[0].rstrip(",")
    return {
        "level": finding.level,
        "title": f"{finding.title}.",
        "cause": finding.cause,
        "rule": finding.threshold,
        "advice": finding.advice,
        "field": blamed,
        "changes": finding.changes,
        "use": _use(finding.changes),
    }


def _use(changes: Mapping[str, Any]) -> str:
    """What the button says: ``Use 0.0002`` for one setting, ``Use top-k 0 and top-p 1`` for several; empty for none."""
    values = {name: _value(value) for name, value in changes.items()}
    if len(values) <= 1:
        return "".join(f"Use {value}" for value in values.values())
    titles = {name: field.title or name for kind in STAGES.values() for name, field in walk_fields(kind)}
    return "Use " + " and ".join(f"{titles[name]} {value}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _judges(config: RunConfig) -> str:
    """Who scores: ``a judge (sentiment) scores``, ``2 rules score``."""
    components = config.reward.components
    if len(components) > 3:
        return f"{len(components)} reward components score"
    names = [component.name or component.described() for component in components]
    if len(names) == 1:
        return f"a judge ({names[0]}) scores"
    return " and ".join([", ".join(names[:-1]), names[-1]]) + " score"


def figures(config: RunConfig, report: Preflight | None, recipe: Recipe) -> list[dict[str, str]]:
    """Download and disk as label, value and help; memory and time are shown by :mod:`forecast`."""
    if report is None:
        return [recipe_time(config, recipe) or UNKNOWN_TIME]
    download = format_bytes(report.download_bytes) if report.download_bytes else "none"
    return [
        {"label": "Download", "value": download, "help": "Weights that are not on this machine yet."},
        {"label": "Disk", "value": f"at most {format_bytes(report.disk_bytes)}", "help": "Kept checkpoints and recorded responses."},
    ]


def recipe_time(config: RunConfig, recipe: Recipe) -> dict[str, str] | None:
    """The recipe's measured time, scaled to these settings; None unless it was measured and the models are the recipe's."""
    minutes = None if recipe.minutes is None else scaled_minutes(config, recipe.config, recipe.minutes)
    if minutes is None:
        return None
    return {"label": "Time", "value": f"about {duration(minutes)}", "help": "On two CPU cores; less on a GPU."}


def tags(recipe: Recipe, minutes: float | None = None) -> list[str]:
    """What a recipe's card says about its cost; ``minutes`` as measured on this machine, or None."""
    known = recipe.minutes if minutes is None else minutes
    download = f"downloads {recipe.download}" if recipe.download else "no download"
    return [*([f"about {duration(known)}"] if known is not None else []), download, *([recipe.gpu] if recipe.gpu else [])]


def duration(minutes: float) -> str:
    """``0.3`` -> "20 seconds", ``1.2`` -> "1 minute", ``200`` -> "3 hours"."""
    if minutes < 0.9:
        return count(max(10, round(minutes * 6) * 10), "second", "seconds")
    if minutes < 90:
        return count(round(minutes), "minute", "minutes")
    return count(round(minutes / 60), "hour", "hours")


def count(number: int, one: str, many: str) -> str:
    """``1 step``, ``3,840 steps``."""
    return f"{grouped(number)} {one if number == 1 else many}"


def grouped(number: int) -> str:
    """3840 -> "3,840"."""
    return f"{number:,}"
