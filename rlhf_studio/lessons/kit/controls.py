"""What a reader can change. Each control has finitely many values, so that the page can have the answers for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MOST_VALUES = 101
"""Of a control: a sweep over them all is sent to the page at once."""


TYPED_DIGITS = 3


class Control(Protocol):
    """A slider, a choice, a toggle, or typed numbers. ``name`` is the argument of the scene's function."""

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
        return [round(self.low + index * self.step, self.digits) for index in range(count + 1)]

    def described(self) -> dict[str, Any]:
        return {"kind": "slider", "name": self.name, "values": self.values(), "start": self.start, "digits": self.digits, "unit": self.unit}


@dataclass(frozen=True)
class Listed:
    """Numbers in ascending order that follow no rule, such as the steps that a run has on record. There may be any number of them: they
    are not swept.

    Raises ValueError when there is none, or ``start`` is none of them.
    """

    name: str
    numbers: Sequence[float]
    start: float
    digits: int = 0

    def __post_init__(self) -> None:
        if self.start not in self.numbers:
            raise ValueError(f"{self.name}: the start {self.start} is none of its {len(self.numbers)} values")

    def values(self) -> list[float]:
        return list(self.numbers)

    def described(self) -> dict[str, Any]:
        range_shown = {"values": self.values(), "start": self.start, "digits": self.digits, "unit": ""}
        return {"kind": "slider", "name": self.name, "swept": False, **range_shown}


@dataclass(frozen=True)
class Choice:
    """One of a few names; the text of the lesson says what each is called (``:::words``). ``plain`` names are shown as they are."""

    name: str
    options: Sequence[str]
    start: str
    plain: bool = False

    def __post_init__(self) -> None:
        if self.start not in self.options:
            raise ValueError(f"{self.name}: the start {self.start!r} is none of {', '.join(self.options)}")

    def values(self) -> list[str]:
        return list(self.options)

    def described(self) -> dict[str, Any]:
        return {"kind": "choice", "name": self.name, "values": self.values(), "start": self.start, "plain": self.plain}


@dataclass(frozen=True)
class Toggle:
    """Off or on."""

    name: str
    start: bool = False

    def values(self) -> list[bool]:
        return [False, True]

    def described(self) -> dict[str, Any]:
        return {"kind": "toggle", "name": self.name, "values": self.values(), "start": self.start}


@dataclass(frozen=True)
class Typed:
    """A few numbers that a reader types, one for each of some names; a text such as ``2 1.5 0.5``.

    Whoever changes them in one scene finds them changed in all scenes of the lesson that have them. ``others`` are values that a question
    may be asked with again.
    """

    name: str
    start: str
    others: Sequence[str]
    low: float
    high: float

    def __post_init__(self) -> None:
        for text in self.values():
            if self.settled(text) != text:
                raise ValueError(f"{self.name}: {text!r} is not as it is written here: {self.settled(text)!r}")

    def values(self) -> list[str]:
        return [self.start, *self.others]

    def settled(self, value: Any) -> str:
        """A text as it is written here. Raises ValueError for what is not as many numbers as at the start, or out of bounds."""
        count = len(numbers_of(self.start))
        try:
            numbers = numbers_of(value if isinstance(value, str) else "")
        except ValueError:
            numbers = []
        if len(numbers) != count or not all(self.low <= number <= self.high for number in numbers):
            raise ValueError(f"{self.name}: {count} numbers from {self.low:g} to {self.high:g}, with spaces between them, please")
        return " ".join(f"{round(number, TYPED_DIGITS):g}" for number in numbers)

    def described(self) -> dict[str, Any]:
        bounds = {"count": len(numbers_of(self.start)), "low": self.low, "high": self.high, "digits": TYPED_DIGITS}
        return {"kind": "typed", "name": self.name, "values": self.values(), "start": self.start, "swept": False, "shared": True, **bounds}


def numbers_of(text: str) -> list[float]:
    """The numbers of a typed text. Raises ValueError for what is no number."""
    return [float(part) for part in text.split()]


def around(name: str, low: float, high: float, step: float, own: float, *, most_digits: int = 4) -> Listed:
    """Numbers from ``low`` to ``high`` by ``step``, and the run's own number ``own``, shown with up to ``most_digits``: it is the start."""
    grid = Slider(name, low, high, step, start=low)
    digits = next((count for count in range(grid.digits, most_digits) if math.isclose(own, round(own, count), abs_tol=1e-9)), most_digits)
    return Listed(name, sorted({*(x for x in grid.values() if not math.isclose(x, own, abs_tol=1e-9)), own}), own, digits)


@dataclass(frozen=True)
class FromRun:
    """A control whose values are known when what the scene needs is loaded, such as the steps of a run.

    Attributes:
        name: as of any control.
        make: makes it, from what the scene needs and from the values of the controls before it, both by name.
        shared: a reader who changes it in one scene finds it changed in all scenes of the lesson that have it.
        own: it starts at what the run itself had, and the page says so.
        fixed: its values depend on the run alone, so the page gets them once.
    """

    name: str
    make: Callable[[Mapping[str, Any], Mapping[str, Any]], Control]
    shared: bool = False
    own: bool = False
    fixed: bool = False

    @property
    def start(self) -> None:
        """None stands for the start of what is made."""
        return None

    @staticmethod
    def settled(control: Control, value: Any) -> Any:
        """The value that a control takes: this one, or the nearest number; the start where nothing is near, and for None."""
        values = control.values()
        if value in values:
            return values[values.index(value)]
        numbers = [candidate for candidate in values if isinstance(candidate, int | float) and not isinstance(candidate, bool)]
        if numbers and isinstance(value, int | float) and not isinstance(value, bool):
            return min(numbers, key=lambda candidate: abs(candidate - value))
        return control.start
