"""What the table of metrics is made of: :class:`Metric`, with the line of a chart and the tile that show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Term:
    """One quantity, explained: an entry of the glossary.

    Attributes:
        title: short name for labels, in sentence case.
        unit: unit of the number, empty where it has none.
        meaning: one sentence: what it is.
        good: one sentence: what good looks like.
        healthy_low, healthy_high: the usual range of a healthy run, in the number's own unit; None where none is known.
    """

    title: str
    unit: str
    meaning: str
    good: str
    healthy_low: float | None = None
    healthy_high: float | None = None


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart on the Live page.

    Attributes:
        chart: key of the chart, as in ``ui/live/charts.py``.
        axis: the y axis that the line belongs to.
        style: ``line``; ``soft`` for a fainter one; ``asked`` for a fainter one that is drawn when a person asks for it; ``steps`` for a
            setting, which stays until it changes, and is never smoothed; ``stack`` for an area on top of those before it; ``sparse`` for
            what is measured now and then: each measurement is a dot, and lines join them.
        percent: whether the values are shares, to be shown as percentages.
    """

    chart: str
    axis: Literal["left", "right"] = "left"
    style: Literal["line", "soft", "asked", "steps", "stack", "sparse"] = "line"
    percent: bool = False


@dataclass(frozen=True)
class Tile:
    """One number of the tile row above the charts: how many digits, whether as a percentage, and a label if the title is too long."""

    digits: int = 2
    percent: bool = False
    label: str = ""


@dataclass(frozen=True)
class Metric:
    """One number of each training step.

    Attributes:
        name: as the step's record has it (``objective/kl``). A name that ends in ``/*`` stands for all names that begin so.
        title, unit, meaning, good: as in :class:`Term`.
        usual: lowest and highest value of a healthy run, in the metric's own unit; None where no range is known.
        colour: its colour on the page, the same everywhere: a name ``x`` for which ``ui/assets`` defines ``--q-x``.
        lines: the charts that draw it, most metrics in none.
        tile: the tile that shows its newest value; None without one.
    """

    name: str
    title: str
    unit: str
    meaning: str
    good: str
    usual: tuple[float, float] | None = None
    colour: str = "part"
    lines: tuple[ChartLine, ...] = ()
    tile: Tile | None = None

    @property
    def term(self) -> Term:
        """What the glossary says of it."""
        return Term(self.title, self.unit, self.meaning, self.good, *(self.usual or (None, None)))
