"""Rows of a Parquet file, a few at a time. Runs in a helper process: see :mod:`rlhf_studio.inputs.prompts.tables`."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.prompts.errors import PromptsError, no_column
from rlhf_studio.inputs.prompts.lines import too_long
from rlhf_studio.inputs.prompts.rows import MAX_ROW_CHARACTERS, RawRow, Source

BATCH_ROWS = 64
MAX_CELL_BYTES = 4 * MAX_ROW_CHARACTERS


def open_parquet(path: Path, columns: dict[str, str]) -> Source:
    """The rows of a Parquet file, from the wanted columns only. Raises :class:`PromptsError`, also while rows are drawn."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path, memory_map=False, pre_buffer=False)
        names = list(file.schema_arrow.names)
    except (pyarrow.ArrowException, OSError) as error:
        raise PromptsError("data.prompts", f"{path.name} is not a readable Parquet file ({_first_line(error)})") from None
    for field, column in columns.items():
        if column not in names:
            raise no_column(field, column, names)
    return Source(_rows(file, list(columns.values())), names)


def _rows(file: Any, columns: list[str]) -> Generator[RawRow, None, None]:
    import pyarrow

    number = 0
    try:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(dict.fromkeys(columns)), use_threads=False):
            for row in range(batch.num_rows):
                number += 1
                yield RawRow(number, [_cell(batch.column(column), row, number, column) for column in columns])
    except (MemoryError, pyarrow.ArrowMemoryError):
        raise PromptsError("data.prompts", f"the rows after {number:,} need too much memory; write the file with smaller rows") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise PromptsError("data.prompts", f"the rows after {number:,} cannot be read ({_first_line(error)})") from None


def _cell(column: Any, row: int, number: int, name: str) -> Any:
    """One cell as Python holds it; looked at for its size before it is made into an object."""
    if column.slice(row, 1).nbytes > MAX_CELL_BYTES:
        raise too_long(number)
    try:
        return column[row].as_py()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise PromptsError("data.prompts", f"row {number} is not UTF-8 text (byte 0x{byte:02x}) in {name!r}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]
