"""The rows of a Parquet file as records that JSON can hold. A value that cannot be read makes its own row unreadable and no other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rlhf_studio.visible import visible

if TYPE_CHECKING:
    import pyarrow

MOST_NAME = 60  # characters


@dataclass(frozen=True)
class Row:
    """A record, and its number in its file: ``fields`` None where it could not be read, and then ``problem`` says why."""

    number: int
    fields: dict[str, Any] | None
    problem: str = ""


def rows_of(batch: pyarrow.RecordBatch, first: int) -> list[Row]:
    """The rows of a batch, whose first one has the number ``first``."""
    names = batch.schema.names
    if twice := next((name for name in names if names.count(name) > 1), None):
        problem = f"the column {_short(twice)} stands twice in the file"
        return [Row(first + index, None, problem) for index in range(batch.num_rows)]
    rows: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    problems: dict[int, str] = {}
    for name, column in zip(names, batch.columns, strict=True):
        for index, value in enumerate(_values(column)):
            if isinstance(value, _Unreadable):
                problems.setdefault(index, f"its column {_short(name)} cannot be read ({value.why})")
            else:
                rows[index][name] = value
    return [Row(first + index, None if index in problems else row, problems.get(index, "")) for index, row in enumerate(rows)]


@dataclass(frozen=True)
class _Unreadable:
    why: str


def _values(column: pyarrow.Array) -> list[Any]:
    try:
        return [_plain(value) for value in column.to_pylist()]
    except (ValueError, OverflowError, LookupError, RecursionError):  # no UTF-8, a time outside the calendar or of an unknown zone
        return [_value(cell) for cell in column]


def _value(cell: pyarrow.Scalar) -> Any:
    try:
        return _plain(cell.as_py())
    except (ValueError, OverflowError, LookupError, RecursionError) as error:
        return _Unreadable(visible(str(error), lines=False)[:120])


def _plain(value: Any) -> Any:
    """The same as JSON has it: times and bytes as text, decimal numbers as numbers. Bytes that are no text stay, as most are never read."""
    if isinstance(value, list | tuple):  # an entry of a map is a tuple
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return _text(value)
    return str(value) if isinstance(value, timedelta) else value


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _short(name: str) -> str:
    return visible(name, lines=False)[:MOST_NAME]
