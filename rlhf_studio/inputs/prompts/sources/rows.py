"""One row of any source, as its cells came, and the limits that hold for all sources."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.config import DataConfig

MAX_ROW_CHARACTERS = 100_000
TYPE_KEY = "__type__"
"""Key of the object that stands for a cell which is neither text, number, list nor object: its value names the type."""

Tick = Callable[[str], None]
"""Called now and then while rows arrive, with what is going on; may raise to give up."""


@dataclass(frozen=True)
class RawRow:
    """The wanted cells of one row, in the order of :func:`wanted_columns`.

    Attributes:
        number: as a person counts rows in this file, from 1.
        cells: whatever the source holds there.
    """

    number: int
    cells: list[Any]


@dataclass(frozen=True)
class Source:
    """An opened source: its rows; complete once the first row was drawn, its column names and what a person should know of it."""

    rows: Generator[RawRow, None, None]
    columns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def wanted_columns(data: DataConfig) -> dict[str, str]:
    """Setting -> column name: the prompt's column, and the reference's when one is named."""
    reference = {"data.reference_column": data.reference_column} if data.reference_column else {}
    return {"data.column": data.column, **reference}


def size_of(cell: Any) -> int:
    """Characters (or bytes) in a cell; anything else than text counts as one."""
    if isinstance(cell, dict):
        return sum(size_of(part) for part in cell.values())
    if isinstance(cell, list):
        return sum(size_of(part) for part in cell)
    return len(cell) if isinstance(cell, str | bytes) else 1
