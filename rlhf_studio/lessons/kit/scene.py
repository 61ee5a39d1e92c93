"""A scene: controls, a function from their values to numbers, and pictures of the numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.lessons.kit.controls import Control, FromRun, Typed
from rlhf_studio.lessons.kit.pictures import Picture

Numbers = dict[str, Any]
"""What a scene's function gives: numbers, yes or no, and words, which the text may show; and lists and tensors, for pictures alone."""


class CannotAsk(Exception):
    """There are no numbers to show for the chosen run; the message is one sentence for people."""


class Word(str):
    """A name that a lesson's text translates in its ``:::words``: the words depend on the language, the numbers do not."""


@dataclass(frozen=True)
class Scene:
    """One interaction of a lesson.

    Attributes:
        name: unique in the lesson; the text has it in ``:::scene name``.
        numbers: takes the controls by their names and gives the numbers. It has no memory: equal controls, equal numbers. With ``needs``,
            its first arguments are the loaded things that these name.
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
        """Each control with its value. ``needed``: what the scene needs, loaded.

        A control that is made from a run takes the nearest of its values. Raises ValueError for a value that any other control cannot
        have, and :class:`CannotAsk`.
        """
        settled: list[tuple[Control, Any]] = []
        for declared in self.controls:
            value = values.get(declared.name)
            if isinstance(declared, FromRun):
                control = declared.make(needed, {control.name: chosen for control, chosen in settled})
                settled.append((control, declared.settled(control, value)))
            elif isinstance(declared, Typed):
                settled.append((declared, declared.settled(value)))
            elif value not in declared.values():
                raise ValueError(f"{declared.name}: {value!r} is none of its values")
            else:
                settled.append((declared, value))
        return settled

    def compute(self, values: Mapping[str, Any], needed: Mapping[str, Any]) -> Numbers:
        """All numbers for these values of the controls, themselves included. Raises as :meth:`made` does."""
        chosen = {control.name: value for control, value in self.made(values, needed)}
        return {**chosen, **self.numbers(**{name: needed[name] for name in self.needs}, **chosen)}
