"""One row of any source, as its cells came, and the limits that hold for all sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.prompts.errors import SOURCE, PromptsError
from rlhf_studio.language import S_

MAX_ROW_CHARACTERS = 100_000
MOST_FILES = 10_000
"""The most files and folders in a folder of data."""
MOST_COLUMNS = 1_000
"""The most columns that are known by name: each object of a file could have keys of its own."""
MOST_LISTED = 20
TYPE_KEY = "__type__"
"""Key of the object that stands for a cell which is neither text, number, list nor object: its value names the type."""

Tick = Callable[[str], None]
"""Called now and then while rows arrive, with what is going on; may raise to give up."""


@dataclass(frozen=True)
class SourceRequest:
    """A source, and which columns to read.

    Attributes:
        name: a file, a folder or a dataset id.
        columns: setting -> the column it names, which must be there; a path such as ``reward_model.ground_truth`` leads into objects.
        usual: further columns, which are read where the source has them.
        setting: the setting that names the source, for errors.
    """

    name: str
    columns: dict[str, str] = field(default_factory=dict)
    usual: tuple[str, ...] = ()
    subset: str = ""
    split: str = "train"
    revision: str = "main"
    setting: str = SOURCE


@dataclass(frozen=True)
class RawRow:
    """The requested cells of one row: those of :attr:`SourceRequest.columns` in their order, then those of :attr:`SourceRequest.usual`.

    Attributes:
        number: as a person counts rows in this file, from 1.
        cells: whatever the source holds there; None for a usual column that it does not have.
    """

    number: int
    cells: list[Any]


@dataclass(frozen=True)
class RowSource:
    """An opened source: its rows, its column names and what a person should know of it, from the first row on.

    Objects of a file may have keys that the first one had not: they come to the columns with the row.
    """

    rows: Generator[RawRow, None, None]
    columns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def entries_of(folder: Path) -> list[Path]:
    """All that is in a folder, by name. Raises :class:`PromptsError` for too much to be data: a disk takes minutes to look through."""
    entries = list(islice(folder.rglob("*"), MOST_FILES + 1))
    if len(entries) > MOST_FILES:
        raise PromptsError(SOURCE, f"{folder} holds more than {MOST_FILES:,} files and folders; name the one that holds the data alone")
    return sorted(entries)


def size_of(cell: Any) -> int:
    """Characters (or bytes) in a cell; anything else than text counts as one."""
    if isinstance(cell, dict):
        return sum(size_of(part) for part in cell.values())
    if isinstance(cell, list):
        return sum(size_of(part) for part in cell)
    return len(cell) if isinstance(cell, str | bytes) else 1


def root_of(column: str, columns: Collection[str]) -> str:
    """The column in which ``column`` is: itself, or of a path such as ``reward_model.ground_truth`` the first part."""
    return column if column in columns else column.partition(".")[0]


def value_at(row: Mapping[str, Any], column: str) -> Any:
    """What a row holds in a column, or at the end of a path of keys with dots between. Raises :class:`KeyError` without such a key."""
    if column in row:
        return row[column]
    first, _, rest = column.partition(".")
    inside = row[first]
    if not rest or not isinstance(inside, Mapping | None):
        raise KeyError(column)
    return None if inside is None else value_at(inside, rest)


def unused_note(columns: Sequence[str], used: Collection[str]) -> list[str]:
    """One sentence that lists the columns of which nothing is read, or none."""
    unused = [repr(str(name)[:40]) for name in columns if name not in {root_of(name, columns) for name in used}]
    if not unused:
        return []
    more = f" and {len(unused) - MOST_LISTED:,} more" if len(unused) > MOST_LISTED else ""
    return [S_(f"Not used: the column{'s' if len(unused) > 1 else ''} {', '.join(unused[:MOST_LISTED])}{more}.")]
