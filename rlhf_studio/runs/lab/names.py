"""Names that say what is different about a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlhf_studio.config.io import walk_fields
from rlhf_studio.visible import visible

MOST_CHARACTERS = 120
MOST_CHANGES = 3
_TITLES = {name: field.title or name for name, field in walk_fields()}


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


def fork_name(parent: str, step: int | None, changes: Mapping[str, Any]) -> str:
    """A name for a fork or a variation, at most 120 characters: ``Tiny world, from step 20, KL coefficient 0``.

    The runs' own names are no difference between them.
    """
    some = dict([change for change in changes.items() if change[0] != "name"][:MOST_CHANGES])
    parts = [f"from step {step}"] if step is not None else []
    difference = ", ".join([*parts, *([changes_in_words(some)] if some else [])]) or "again"
    parent = visible(parent, lines=False)  # others may have named it
    return f"{parent[: max(1, MOST_CHARACTERS - len(difference) - 2)]}, {difference}"[:MOST_CHARACTERS]


def run_name(sweep_name: str, values: Mapping[str, Any]) -> str:
    """A name that tells a run of a sweep from the others, at most 120 characters: ``β and seeds, KL coefficient 0.05, Seed 1``."""
    difference = changes_in_words(values)[: MOST_CHARACTERS - 10]
    return f"{sweep_name[: MOST_CHARACTERS - len(difference) - 2]}, {difference}" if sweep_name else difference
