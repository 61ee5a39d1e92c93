"""A scene: controls, a function from their values to numbers, and pictures of the numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.lessons.kit.controls import Control, FromRun
from rlhf_studio.lessons.kit.pictures import Picture

Numbers = dict[str, Any]
"""What a scene's function gives: numbers, yes or no, and words, which the text may show; and lists and tensors, for pictures alone."""


class CannotAsk(Exception):
    """There are no numbers to show, because of what is looked at; the message is one sentence for people."""


class Word(str):
    """A name that a lesson's text translates in its ``:::words``: what is said depends on the language, what is computed does not."""


@dataclass(frozen=True)
class Scene:
    """One interaction of a lesson.

    Attributes:
        name: unique in the lesson; the text has it in ``:::scene name``.
        numbers: takes the controls by their names and gives the numbers. It has no memory: equal controls, equal numbers. With ``needs``
            its first arguments are what they name.
        controls: what the reader can change.
        pictures: by the names that the text uses, from all numbers, controls included.
        needs: what has to be loaded for it; see :mod:`rlhf_studio.lessons.answers`.
        slow: it is computed when the reader asks for it, not while a control moves.

    Raises ValueError when the function's arguments are not the controls.
    """

    name: str
    numbers: Callable[..., Numbers]
    controls: Sequence[Control | FromRun] = ()
    pictures: Mapping[str, Callable[[Numbers], Picture]] = field(default_factory=dict)
    needs: Sequence[str] = ()
    slow: bool = False

    def __post_init__(self) -> None:
        takes, given = list(inspect.signature(self.numbers).parameters), [*self.needs, *(control.name for control in self.controls)]
        if takes != given:
            raise ValueError(f"the scene {self.name}: its function takes {takes}, but its needs and controls are {given}")

    def start(self) -> dict[str, Any]:
        """The values of the controls at the beginning; None for those that are made from a run."""
        return {control.name: control.start for control in self.controls}

    def made(self, values: Mapping[str, Any], needed: Mapping[str, Any]) -> list[tuple[Control, Any]]:
        """Each control as it is for these values and for what is needed, with its value.

        One that is made from a run takes the nearest value that it has. Raises ValueError for a value that another cannot have, and
        :class:`CannotAsk`.
        """
        found: list[tuple[Control, Any]] = []
        for one in self.controls:
            value = values.get(one.name)
            if isinstance(one, FromRun):
                control = one.make(needed, {control.name: chosen for control, chosen in found})
                found.append((control, one.settled(control, value)))
            elif value not in one.values():
                raise ValueError(f"{one.name}: {value!r} is none of its values")
            else:
                found.append((one, value))
        return found

    def compute(self, values: Mapping[str, Any], needed: Mapping[str, Any]) -> Numbers:
        """All numbers for these values of the controls, themselves included. Raises as :meth:`made` does."""
        chosen = {control.name: value for control, value in self.made(values, needed)}
        return {**chosen, **self.numbers(**{name: needed[name] for name in self.needs}, **chosen)}
