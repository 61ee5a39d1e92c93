"""Names that say what is different about a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any

from rlhf_studio.config import STAGES, StageConfig
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


def new_name(config: StageConfig, taken: Collection[str]) -> str:
    """A name for a run that nobody has named, at most 120 characters: its recipe's title and what differs from the recipe, in the language
    of whoever starts it; where that is ``taken``, the title has the lowest number that makes it a name of its own.

    ``Tiny world``, ``Tiny world 2``, ``Tiny world, Learning rate 0.9``. A recipe for a model of one's own gives the model's name.
    """
    recipe = next((one for one in list_recipes(config.stage) if one.name == config.recipe and not one.asks), None)
    changed: list[tuple[str, Any]] = []
    if recipe is not None:
        ours, theirs = (one.model_dump(mode="json", exclude={"name"}) for one in (config, recipe.config))
        changed = [(change.setting, change.new) for change in changes_between(theirs, ours)]
    title = _(recipe.title) if recipe else short_name(config.model.policy) or config.recipe
    difference = f", {changes_in_words(dict(changed[:MOST_CHANGES]), _)}" if changed else ""
    difference = visible(difference, lines=False)[: MOST_CHARACTERS // 2]
    room = MOST_CHARACTERS - 5 - len(difference)  # for a number, too
    title = visible(title[:room], lines=False)
    numbered = (f"{title}{f' {number}' if number > 1 else ''}{difference}"[:MOST_CHARACTERS] for number in count(1))
    return next(name for name in numbered if name not in taken)


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
