"""Rows of Parquet files, folders and hub datasets, read by a helper process.

Such a source can hold anything: a page that unpacks to gigabytes, a damaged file that crashes its native reader, a connection
that hangs. The helper (``python -m rlhf_studio.inputs.prompts.sources.tables``) meets it with limited memory; here only text arrives.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from rlhf_studio.child_process.memory import leave_memory
from rlhf_studio.inputs.helper import HelperError, answer, ask_helper, read_task
from rlhf_studio.inputs.prompts.errors import SOURCE, PromptsError
from rlhf_studio.inputs.prompts.sources.hub import open_hub
from rlhf_studio.inputs.prompts.sources.parquet import open_parquet
from rlhf_studio.inputs.prompts.sources.rows import TYPE_KEY, RawRow, RowSource, SourceRequest, Tick, size_of
from rlhf_studio.language import S_

MODULE = "rlhf_studio.inputs.prompts.sources.tables"
MEMORY_BYTES = 3 * 1024**3
UNPACKED_BYTES = 800_000_000
"""The most addresses that the helper may take: in all (importing the dataset library alone takes 1.5 GB), and for the data itself."""
FLUSH_ROWS, FLUSH_CHARACTERS = 200, 1_000_000


def open_table(path: str, request: SourceRequest, *, limit: int | None, seconds: float, tick: Tick) -> RowSource:
    """The first ``limit`` rows (None: all) of ``path``, a Parquet file, a folder or a dataset id.

    Drawing rows raises :class:`PromptsError`, also when the next rows take longer than ``seconds``.
    """
    names: list[str] = []
    notes: list[str] = []
    task = {
        "path": path,
        "subset": request.subset,
        "split": request.split,
        "revision": request.revision,
        "columns": request.columns,
        "usual": request.usual,
        "limit": limit,
    }
    return RowSource(_rows(task, names, notes, seconds, tick), names, notes)


def _rows(task: dict[str, Any], names: list[str], notes: list[str], seconds: float, tick: Tick) -> Generator[RawRow, None, None]:
    count = 0

    def report() -> None:
        tick(f"{count:,} rows of {task['path']}" if count else f"Opening {task['path']}")

    is_remote = not os.path.exists(task["path"])
    answers = ask_helper(MODULE, task, memory_bytes=MEMORY_BYTES, seconds=seconds, network=is_remote, tick=report)
    try:
        for message in answers:
            if "problem" in message:
                raise PromptsError(*message["problem"])
            names.extend(message.get("columns", []))
            notes.extend(message.get("notes", []))
            for number, cells in message.get("rows", []):
                count += 1
                yield RawRow(number, cells)
    except HelperError as error:
        where = S_(f"the rows after {count:,} cannot be read") if count else S_("cannot be read")
        raise PromptsError(SOURCE, f"{task['path']}: {where}: {error}") from None
    finally:
        answers.close()


# --- inside the helper -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer with the column names, then the rows in packs, or with what is wrong."""
    task = read_task()
    try:
        if Path(task["path"]).suffix.lower() == ".parquet" and Path(task["path"]).is_file():
            source = open_parquet(Path(task["path"]), task["columns"], tuple(task["usual"]))
        else:
            source = open_hub(task["path"], task["subset"], task["split"], task["revision"], task["columns"], tuple(task["usual"]))
        leave_memory(UNPACKED_BYTES)
        pack: list[Any] = []
        characters = 0
        named = -1
        for row in source.rows:
            if len(source.columns) > named:
                answer({"rows": pack, "columns": source.columns[max(named, 0) :], "notes": source.notes if named < 0 else []})
                pack, characters, named = [], 0, len(source.columns)
            pack.append([row.number, [plain(cell) for cell in row.cells]])
            characters += sum(map(size_of, row.cells))
            if len(pack) == FLUSH_ROWS or characters > FLUSH_CHARACTERS:  # the other side holds several packs
                answer({"rows": pack})
                pack, characters = [], 0
            if row.number == task["limit"]:
                break
        answer({"rows": pack})
    except PromptsError as error:
        answer({"problem": [error.field, error.message]})


def plain(cell: Any) -> Any:
    """A cell as JSON can carry it; what is neither text, number, list nor object keeps only the name of its type."""
    if cell is None or isinstance(cell, str | bool | int):
        return cell
    if isinstance(cell, float) and math.isfinite(cell):
        return cell
    if isinstance(cell, list | tuple):
        return [plain(part) for part in cell]
    if isinstance(cell, dict):
        return {str(key): plain(part) for key, part in cell.items()}
    return {TYPE_KEY: type(cell).__name__}


if __name__ == "__main__":
    main()
