"""One thing that can be chosen, and a group of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rlhf_studio.language import N_

FROM_HUB = N_("from the hub")
"""What a choice that is not on this disk says of its download, where nobody knows how large it is."""


class NotOffered(ValueError):
    """What was asked for is not to be had here: one sentence for the page."""


@dataclass(frozen=True)
class Choice:
    """One choice.

    Attributes:
        settings: what it fills in, by dotted name; the first of them tells whether it is the present choice.
        title: its name as people know it.
        size: its weights, or its bytes on this disk, in words; empty where nobody can tell.
        detail: what else is known of it, in a few words.
        needs: the memory of a run with it, in words; empty where nobody can tell.
        room: whether that is free on this machine: ``fits``, ``tight`` or ``too_large``; empty where nobody can tell.
        download: what has to be fetched first, in words; empty when it is on this disk.
        licence: its name; empty where it is not known.
    """

    settings: Mapping[str, Any]
    title: str
    size: str = ""
    detail: str = ""
    needs: str = ""
    room: str = ""
    download: str = ""
    licence: str = ""


@dataclass(frozen=True)
class ChoiceGroup:
    """Choices of one origin. ``note``: one sentence of what is left out, or empty."""

    title: str
    choices: list[Choice] = field(default_factory=list)
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """As the page takes it."""
        return asdict(self)


def distinct(groups: Iterable[ChoiceGroup], key: Callable[[Choice], str]) -> list[ChoiceGroup]:
    """The groups that have a choice or a note, each choice in the first of them alone; ``key`` is the same for what is the same choice."""
    groups = list(groups)
    first = {key(choice): choice for group in reversed(groups) for choice in reversed(group.choices)}
    alone = [replace(group, choices=[choice for choice in group.choices if first[key(choice)] is choice]) for group in groups]
    return [group for group in alone if group.choices or group.note]
