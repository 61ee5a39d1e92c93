"""Names that say what is different about a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import count
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from rlhf_studio.config import STAGES, EvaluationRunConfig, StageConfig
from rlhf_studio.config.changes import changes_between
from rlhf_studio.config.io import walk_fields
from rlhf_studio.config.model import short_name
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.language import _
from rlhf_studio.visible import visible

MOST_CHARACTERS = 120
MOST_CHANGES = 3
_TITLES = {name: field.title or name for kind in reversed(STAGES.values()) for name, field in walk_fields(kind)}


def changes_in_words(changes: Mapping[str, Any], say: Callable[[str], str] = str) -> str:
    """Settings by dotted name with their values, in the form's words: ``KL coefficient 0.05, Seed 1``.

    A name that is stored stays English; ``say`` translates what is only shown.
    """
    return say(", ").join(
        f"{say(_TITLES.get(setting, setting.rsplit('.', 1)[-1]))} {say(_value(value))}" for setting, value in changes.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "nothing" if value in (None, "") else str(value)


def new_name(config: StageConfig, taken: Collection[str], runs: Mapping[str, str] = MappingProxyType({})) -> str:
    """A name for a run that nobody has named, at most 120 characters: its recipe's title and what differs from the recipe, in the language
    of whoever starts it; where that is ``taken``, the title has the lowest number that makes it a name of its own.

    ``Tiny world``, ``Tiny world 2``, ``Tiny world, Learning rate 0.9``. A recipe for a model of one's own gives the model's name, and an
    evaluation is called by those it compares: ``Evaluation of Tiny world``. ``runs``: names of runs by id, which stand for their paths.
    """
    recipe = next((one for one in list_recipes(config.stage) if one.name == config.recipe and not one.asks), None)
    changed: list[tuple[str, Any]] = []
    if recipe is not None:
        ours, theirs = (one.model_dump(mode="json", exclude={"name"}) for one in (config, recipe.config))
        changed = [(change.setting, _without_path(change.new, runs)) for change in changes_between(theirs, ours)]
    title = _(recipe.title) if recipe else short_name(config.model.policy) or config.recipe
    if isinstance(config, EvaluationRunConfig) and (compared := _compared(config, runs)):
        title = _("Evaluation of {policies}").format(policies=compared)
        changed = [(setting, value) for setting, value in changed if setting not in ("evaluation.policies", "model.policy")]
    difference = f", {changes_in_words(dict(changed[:MOST_CHANGES]), _)}" if changed else ""
    difference = visible(difference, lines=False)[: MOST_CHARACTERS // 2]
    room = MOST_CHARACTERS - 5 - len(difference)  # for a number, too
    title = visible(title[:room], lines=False)
    numbered = (f"{title}{f' {number}' if number > 1 else ''}{difference}"[:MOST_CHARACTERS] for number in count(1))
    return next(name for name in numbered if name not in taken)


def _compared(config: EvaluationRunConfig, runs: Mapping[str, str]) -> str:
    """Who answers in an evaluation: ``Tiny world (start, 20), gpt2``; empty where that is the policy model alone."""
    steps_of: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, config.evaluation.policies.splitlines())):
        name, _at, which = line.rpartition("@") if "@" in line else (line, "", "")
        run = _run_in(name, runs)
        steps = steps_of.setdefault(_without_path(name, runs) if run else short_name(line), [])
        steps += [which] if run and which not in ("", "all") else []
    named = [f"{name} ({', '.join(steps)})" if steps else name for name, steps in steps_of.items()]
    return _(", ").join(named)


def _run_in(path: str, runs: Mapping[str, str]) -> str:
    """The id of the run whose folder a path leads to or into; empty for none."""
    return next((part for part in reversed(PurePath(path).parts) if part in runs), "")


def _without_path(value: Any, runs: Mapping[str, str]) -> Any:
    """A value for a name: in the place of a file of this machine the name of its run, or the last part of its path."""
    if not isinstance(value, str) or not (run := _run_in(value, runs)) and not PurePath(value).is_absolute():
        return value
    return runs[run] or run if run else PurePath(value).name


def fork_name(parent: str, step: int | None, changes: Mapping[str, Any]) -> str:
    """A name for a fork or a variation, at most 120 characters: ``Tiny world, from step 20, KL coefficient 0``.

    The runs' own names are no difference between them.
    """
    some = dict([change for change in changes.items() if change[0] != "name"][:MOST_CHANGES])
    parts = [f"from step {step}"] if step is not None else []
    difference = ", ".join([*parts, *([changes_in_words(some)] if some else [])]) or "again"
    parent = visible(parent, lines=False)  # others may have named it
    return f"{parent[: max(1, MOST_CHARACTERS - len(difference) - 2)]}, {difference}"[:MOST_CHARACTERS]


def repair_name(parent: str, taken: Collection[str]) -> str:
    """A name for a run that mends another, at most 120 characters, in the language of whoever starts it: ``rate 0.9, repaired``.

    Where that is ``taken``, it has the lowest number that makes it a name of its own.
    """
    parent = visible(parent, lines=False)
    repaired = _("{run}, repaired")
    room = MOST_CHARACTERS - 5 - len(repaired)
    first = parent if repaired.format(run="") in parent else repaired.format(run=parent[:room])
    numbered = (f"{first} {number}" if number > 1 else first for number in count(1))
    return next(name for name in numbered if name not in taken)


def run_name(sweep_name: str, values: Mapping[str, Any]) -> str:
    """A name that tells a run of a sweep from the others, at most 120 characters: ``β and seeds, KL coefficient 0.05, Seed 1``."""
    difference = changes_in_words(values)[: MOST_CHARACTERS - 10]
    return f"{sweep_name[: MOST_CHARACTERS - len(difference) - 2]}, {difference}" if sweep_name else difference
