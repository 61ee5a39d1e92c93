"""What a reader can change: each control has finitely many values, so that whole sweeps can be computed, and answers kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MOST_VALUES = 101
"""Of a control: a sweep over them all is sent to the page at once."""


class Control(Protocol):
    """A slider, a choice or a toggle. ``name`` is the argument of the scene's function."""

    @property
    def name(self) -> str: ...

    @property
    def start(self) -> Any: ...

    def values(self) -> list[Any]:
        """All values that it can have, in order."""
        ...

    def described(self) -> dict[str, Any]:
        """What the page needs to draw it."""
        ...


@dataclass(frozen=True)
class Slider:
    """Numbers from ``low`` to ``high`` in steps of ``step``; with a ``unit`` that screen readers say, such as ``nats``.

    Raises ValueError when the steps do not lead to ``high``, or ``start`` is not one of the values.
    """

    name: str
    low: float
    high: float
    step: float
    start: float
    unit: str = ""

    def __post_init__(self) -> None:
        steps = (self.high - self.low) / self.step
        if not math.isclose(steps, round(steps), abs_tol=1e-6) or not 1 <= round(steps) < MOST_VALUES:
            raise ValueError(f"{self.name}: {self.low} to {self.high} by {self.step} is not a whole number of at most 100 steps")
        if self.start not in self.values():
            raise ValueError(f"{self.name}: the start {self.start} is none of its values")

    @property
    def digits(self) -> int:
        """Decimals that its values need."""
        return next(digits for digits in range(10) if all(math.isclose(x, round(x, digits), abs_tol=1e-9) for x in (self.low, self.step)))

    def values(self) -> list[float]:
        count = round((self.high - self.low) / self.step)
        return [round(self.low + place * self.step, self.digits) for place in range(count + 1)]

    def described(self) -> dict[str, Any]:
        return {"kind": "slider", "name": self.name, "values": self.values(), "start": self.start, "digits": self.digits, "unit": self.unit}


@dataclass(frozen=True)
class Choice:
    """One of a few names; the text of the lesson says what each is called (``:::words``)."""

    name: str
    options: Sequence[str]
    start: str

    def __post_init__(self) -> None:
        if self.start not in self.options:
            raise ValueError(f"{self.name}: the start {self.start!r} is none of {', '.join(self.options)}")

    def values(self) -> list[str]:
        return list(self.options)

    def described(self) -> dict[str, Any]:
        return {"kind": "choice", "name": self.name, "values": self.values(), "start": self.start}


@dataclass(frozen=True)
class Toggle:
    """Off or on."""

    name: str
    start: bool = False

    def values(self) -> list[bool]:
        return [False, True]

    def described(self) -> dict[str, Any]:
        return {"kind": "toggle", "name": self.name, "values": self.values(), "start": self.start}
