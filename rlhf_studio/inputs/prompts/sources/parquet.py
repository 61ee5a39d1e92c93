"""Rows of a Parquet file, a few at a time. Runs in a helper process: see :mod:`rlhf_studio.inputs.prompts.sources.tables`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO

from rlhf_studio.inputs.error_text import first_line
from rlhf_studio.inputs.prompts.errors import SOURCE, PromptsError, no_column
from rlhf_studio.inputs.prompts.sources.lines import refuse_doubled, too_long
from rlhf_studio.inputs.prompts.sources.rows import MAX_ROW_CHARACTERS, RawRow, RowSource, root_of, value_at
from rlhf_studio.language import S_

BATCH_ROWS = 64
BUFFER_BYTES = 1 << 20
MAX_CELL_BYTES = 4 * MAX_ROW_CHARACTERS
"""Text of that many characters as UTF-8."""
SMALL_GROUP_BYTES = 16_000_000
"""Groups of rows up to this size are unpacked, to name the row that is too long."""


def open_parquet(path: Path, columns: dict[str, str], usual: tuple[str, ...] = ()) -> RowSource:
    """The rows of a Parquet file, from the requested columns only (:class:`SourceRequest` says which).

    Raises :class:`PromptsError`, also while rows are drawn.
    """
    return read_parquet(path, path.name, columns, usual)


def read_parquet(file: Path | BinaryIO, name: str, columns: dict[str, str], usual: tuple[str, ...] = (), before: int = 0) -> RowSource:
    """As :func:`open_parquet`, of a file that may be open already, and far away. ``before``: rows in the files before this one."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        opened = ParquetFile(file, memory_map=False, pre_buffer=False, buffer_size=BUFFER_BYTES)  # page by page, not whole columns
        names = list(opened.schema_arrow.names)
    except (pyarrow.ArrowException, OSError) as error:
        raise PromptsError(SOURCE, f"{name} is not a readable Parquet file ({first_line(error)})") from None
    roots = {field: root_of(column, names) for field, column in columns.items()}
    for field, column in columns.items():
        if roots[field] not in names:
            raise no_column(field, column, names)
    refuse_doubled(names, roots, usual)
    requested = [*columns.values(), *usual]
    _check_footer(opened.metadata, {*roots.values(), *usual} & set(names), before)
    return RowSource(_rows(opened, requested, before), names)


def _check_footer(footer: Any, columns: set[str], before: int) -> None:
    """Refuse rows that are too long by the file's own account, before any is unpacked.

    The account can only be too low (repeated text is stored once): what it does not show meets the limits on batches and memory.
    """
    paths = [footer.schema.column(leaf).path for leaf in range(footer.num_columns)]
    leaves = [leaf for leaf, path in enumerate(paths) if any(f"{path}.".startswith(f"{column}.") for column in columns)]
    for group in map(footer.row_group, range(footer.num_row_groups)):
        size = sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
        if size > max(SMALL_GROUP_BYTES, MAX_CELL_BYTES * len(columns) * group.num_rows):
            raise too_long(before + 1) if group.num_rows == 1 else _too_long_on_average(before, group.num_rows)
        before += group.num_rows


def _too_long_on_average(before: int, count: int) -> PromptsError:
    message = S_(f"rows {before + 1:,} to {before + count:,} hold more than {MAX_ROW_CHARACTERS:,} characters each on average")
    return PromptsError(SOURCE, f"{message}; use shorter texts")


def _rows(file: Any, columns: list[str], number: int) -> Generator[RawRow, None, None]:
    import pyarrow

    names = file.schema_arrow.names
    roots = [root_of(name, names) for name in columns]
    read = [root for root in dict.fromkeys(roots) if root in names]
    try:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=read, use_threads=False):
            arrays = {root: batch.column(root) for root in read}
            for row in range(batch.num_rows):
                number += 1
                cells = {root: _cell(array, row, number, root) for root, array in arrays.items()}
                yield RawRow(
                    number, [_at(cells, name, number) if root in cells else None for name, root in zip(columns, roots, strict=True)]
                )
    except (MemoryError, pyarrow.ArrowMemoryError):
        raise PromptsError(SOURCE, f"the rows after {number:,} need too much memory; write the file with smaller rows") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise PromptsError(SOURCE, f"the rows after {number:,} cannot be read ({first_line(error)})") from None


def _at(row: dict[str, Any], name: str, number: int) -> Any:
    try:
        return value_at(row, name)
    except KeyError:
        raise PromptsError(SOURCE, f"row {number} has no {name!r}") from None


def _cell(column: Any, row: int, number: int, name: str) -> Any:
    """One cell as Python holds it; looked at for its size before it is made into an object."""
    if column.slice(row, 1).nbytes > MAX_CELL_BYTES:
        raise too_long(number)
    try:
        return column[row].as_py()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise PromptsError(SOURCE, f"row {number} is not UTF-8 text (byte 0x{byte:02x}) in {name!r}") from None
