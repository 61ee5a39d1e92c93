"""Pictures as plain data, of seven kinds; ``ui/assets/pictures`` draws them. They hold final numbers: nothing is computed there.

A label that is a :class:`~rlhf_studio.lessons.kit.scene.Word` is looked up in the lesson's ``:::words``; any other text is shown as it
is, such as a token. ``tone`` names a colour: a quantity of the pages (score, gold, kl, policy, value, ratio, clip, entropy, part-1 ...),
or ``plus``, ``minus`` and ``quiet``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Number = float | int | None
"""None is shown as a gap: this number does not exist."""


@dataclass(frozen=True)
class Picture:
    """A picture's kind and its data."""

    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Token:
    """A token with a number that colours it. ``mark`` sets it off: ``chosen``, ``clipped`` or ``masked``; ``note`` stands below it."""

    text: str
    value: Number = None
    mark: str = ""
    note: str = ""


@dataclass(frozen=True)
class Bar:
    """A bar, or several beside each other, one for each of the picture's series."""

    label: str
    values: Sequence[Number]
    mark: str = ""


@dataclass(frozen=True)
class Series:
    """A curve through the points (x, y). ``dots`` draws the points alone."""

    label: str
    x: Sequence[float]
    y: Sequence[Number]
    tone: str = "score"
    dots: bool = False


@dataclass(frozen=True)
class Zone:
    """A part of a plane that is set off, such as where the gradient is 0."""

    label: str
    x: tuple[float, float]
    y: tuple[float, float]
    tone: str = "quiet"


@dataclass(frozen=True)
class Arrow:
    """From a point of a plane by (dx, dy)."""

    x: float
    y: float
    dx: float
    dy: float
    tone: str = "policy"
    label: str = ""


@dataclass(frozen=True)
class Box:
    """A box of a flow, in a grid of columns and rows counted from 0. ``to`` are the labels of the boxes that it leads to."""

    label: str
    column: int
    row: int
    note: str = ""
    tone: str = "quiet"
    to: Sequence[str] = field(default_factory=tuple)


def tokens(items: Sequence[Token], *, label: str, size: float, digits: int = 2) -> Picture:
    """A text as coloured tokens: from minus ``size`` (blue) through 0 to ``size`` (orange). ``label`` names the number."""
    return Picture("tokens", {"items": _plain(items), "label": label, "size": size, "digits": digits})


def bars(items: Sequence[Bar], series: Sequence[str], *, label: str, low: float, high: float, digits: int = 2) -> Picture:
    """Horizontal bars from 0; ``low`` and ``high`` bound the axis, so that it does not jump while a control moves."""
    return Picture("bars", {"items": _plain(items), "series": list(series), "label": label, "low": low, "high": high, "digits": digits})


def line(
    series: Sequence[Series],
    *,
    x: str,
    y: str,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    levels: Mapping[str, float] | None = None,
    at: float | None = None,
) -> Picture:
    """Curves. ``levels`` are horizontal lines by label; ``at`` is the reader's position on the x axis."""
    axes = {"x": x, "y": y, "x_range": list(x_range), "y_range": list(y_range)}
    return Picture("line", {"series": _plain(series), **axes, "levels": dict(levels or {}), "at": at})


def plane(
    points: Sequence[Series],
    *,
    x: str,
    y: str,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    zones: Sequence[Zone] = (),
    arrows: Sequence[Arrow] = (),
) -> Picture:
    """Points of two numbers, with zones and arrows."""
    axes = {"x": x, "y": y, "x_range": list(x_range), "y_range": list(y_range)}
    return Picture("plane", {"points": _plain(points), "zones": _plain(zones), "arrows": _plain(arrows), **axes})


def ledger(
    columns: Sequence[str], rows: Mapping[str, Sequence[Number | str]], *, result: str = "", at: int | None = None, digits: int = 2
) -> Picture:
    """A table with a token per column and a quantity per row, by label. ``result`` is the row that matters; ``at`` a column set off."""
    return Picture("ledger", {"columns": list(columns), "rows": _rows(rows), "result": result, "at": at, "digits": digits})


def heat(
    columns: Sequence[str],
    rows: Mapping[str, Sequence[Number]],
    *,
    label: str,
    size: float,
    signed: bool = False,
    digits: int = 2,
    compact: bool = False,
    at: int | None = None,
) -> Picture:
    """Cells coloured from 0 to ``size``, or with ``signed`` from minus ``size`` to ``size``; ``at`` is a column set off.

    A ``compact`` one, for many columns, has no numbers in its cells.
    """
    options = {"label": label, "size": size, "signed": signed, "digits": digits, "compact": compact, "at": at}
    return Picture("heat", {"columns": list(columns), "rows": _rows(rows), **options})


def flow(boxes: Sequence[Box]) -> Picture:
    """Boxes and arrows: the loop, the stages."""
    return Picture("flow", {"boxes": _plain(boxes)})


def _plain(items: Sequence[Any]) -> list[dict[str, Any]]:
    return [asdict(item) for item in items]


def _rows(rows: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [{"label": label, "cells": list(cells)} for label, cells in rows.items()]
