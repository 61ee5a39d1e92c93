"""The rows of a Parquet file as records that JSON can hold. A value that cannot be read makes its own row unreadable and no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rlhf_studio.analysis.logs.shape import MOST_LINE_BYTES
from rlhf_studio.language import S_
from rlhf_studio.visible import visible

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

MOST_NAME = 60  # characters
UNPACKED_ROWS, UNPACKED_BYTES = 16, 1_000_000_000  # of what pyarrow unpacks at once


@dataclass(frozen=True)
class Row:
    """A record, and its number in its file: ``fields`` None where it could not be read, and then ``problem`` says why."""

    number: int
    fields: dict[str, Any] | None
    problem: str = ""


def batches_of(table: ParquetFile, most_rows: int, most_bytes: int) -> Iterator[list[Row]]:
    """The rows in batches that end at ``most_rows`` rows or ``most_bytes`` bytes.

    A column that says one long text again and again is small in the file and large here, so few rows are unpacked at once.
    """
    groups = [table.metadata.row_group(number).total_byte_size for number in range(table.num_row_groups)]
    at_once = max(1, min(UNPACKED_ROWS, UNPACKED_BYTES // max([1, *groups])))
    rows: list[Row] = []
    number, used = 1, 0
    for unpacked in table.iter_batches(batch_size=at_once, use_threads=False):
        whole = unpacked.nbytes <= most_bytes
        for batch in [unpacked] if whole else [unpacked.slice(index, 1) for index in range(unpacked.num_rows)]:
            rows += rows_of(batch, number)
            number, used = number + batch.num_rows, used + batch.nbytes
            if len(rows) >= most_rows or used >= most_bytes:
                yield rows
                rows, used = [], 0
    if rows:
        yield rows


def rows_of(batch: pyarrow.RecordBatch, first: int) -> list[Row]:
    """The rows of a batch, whose first one has the number ``first``."""
    names = batch.schema.names
    if batch.num_rows == 1 and batch.nbytes > MOST_LINE_BYTES:
        return [Row(first, None, S_(f"the file is too long here: a row of at most {MOST_LINE_BYTES:,} bytes is read"))]
    if twice := next((name for name in names if names.count(name) > 1), None):
        problem = S_(f"the column {_short(twice)} stands twice in the file")
        return [Row(first + index, None, problem) for index in range(batch.num_rows)]
    rows: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    problems: dict[int, str] = {}
    for name, column in zip(names, batch.columns, strict=True):
        for index, value in enumerate(_values(column)):
            if isinstance(value, _Unreadable):
                problems.setdefault(index, S_(f"its column {_short(name)} cannot be read ({value.why})"))
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
