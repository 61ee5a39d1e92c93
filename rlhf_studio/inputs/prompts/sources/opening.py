"""Which reader a source needs, told from its name."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.inputs.models.files import HUB_ID
from rlhf_studio.inputs.prompts.errors import SOURCE, PromptsError
from rlhf_studio.inputs.prompts.sources.lines import open_lines
from rlhf_studio.inputs.prompts.sources.rows import RawRow, RowSource, SourceRequest, Tick, entries_of
from rlhf_studio.inputs.prompts.sources.tables import open_table
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.language import S_

LINE_FORMATS = (".csv", ".tsv", ".jsonl", ".json", ".txt")
FORMATS = (*LINE_FORMATS, ".parquet")
PACKED = (".zip", ".bz2", ".xz", ".zst", ".7z", ".tar", ".tgz", ".rar", ".lz4", ".br")
STALL_SECONDS = 600.0  # the longest wait for the next rows of a table: a run may fetch large pieces over a slow line


def is_remote(name: str) -> bool:
    """Whether the source is a dataset on the hub: nothing of that name is on this machine."""
    return name not in BUNDLED and not os.path.exists(name) and _could_be_dataset(name)


def open_source(
    request: SourceRequest, *, limit: int | None = None, seconds: float = STALL_SECONDS, tick: Tick = lambda text: None
) -> RowSource:
    """Open a source. Raises :class:`PromptsError`, also while rows are drawn.

    Args:
        limit: the most rows to fetch from tables (None: as many as are drawn); line files are read as they are drawn.
        seconds: the longest wait for the next rows of a table.
    """
    try:
        source = _opened(request, limit, seconds, tick)
    except PromptsError as error:
        raise _blamed(error, request) from None
    return source if request.setting == SOURCE else RowSource(_blaming(source.rows, request), source.columns, source.notes)


def _opened(request: SourceRequest, limit: int | None, seconds: float, tick: Tick) -> RowSource:
    name = request.name
    if name.startswith("bundled/") and name not in BUNDLED:
        known = ", ".join(bundled for bundled in BUNDLED if "prompts" in bundled)
        raise PromptsError(SOURCE, f"there is no {name}; there is {known}")
    path = Path(resolve(name))
    if os.path.isdir(path):
        _refuse_packed(path, name)
    if os.path.isdir(path) or is_remote(name):
        return open_table(name, request, limit=limit, seconds=seconds, tick=tick)
    if not os.path.exists(path):  # the os.path functions answer False for names that no file can have, where pathlib may raise
        raise PromptsError(SOURCE, f"there is no file {name}")
    if not os.path.isfile(path):
        raise PromptsError(SOURCE, f"{name} is neither a file nor a folder")
    kind = _format(path)
    if kind == ".parquet":
        return open_table(str(path), request, limit=limit, seconds=seconds, tick=tick)
    if kind != ".txt":
        return open_lines(path, kind, request.columns, request.usual)
    prompts = request.setting == SOURCE  # whose column is named always
    if named := list(request.columns)[1 if prompts else 0 :]:
        raise PromptsError(named[0], "a text file has no columns; leave this empty, or use CSV, JSON Lines or Parquet")
    lines = open_lines(path, kind, {}, () if prompts else request.usual)
    return RowSource(_filled(lines.rows, len(request.usual)), lines.columns) if prompts else lines


def _filled(rows: Generator[RawRow, None, None], nothing: int) -> Generator[RawRow, None, None]:
    """The rows, each with so many empty cells behind its own."""
    for row in rows:
        yield RawRow(row.number, [*row.cells, *[None] * nothing])


def _blaming(rows: Generator[RawRow, None, None], request: SourceRequest) -> Generator[RawRow, None, None]:
    try:
        yield from rows
    except PromptsError as error:
        raise _blamed(error, request) from None


def _blamed(error: PromptsError, request: SourceRequest) -> PromptsError:
    return PromptsError(request.setting, error.message) if error.field == SOURCE else error


def _refuse_packed(folder: Path, name: str) -> None:
    """Archives in a folder are refused by name, as they are alone: what they unpack to is not bounded by their size."""
    for path in entries_of(folder):
        if path.suffix.lower() in PACKED:
            message = S_(f"{name} holds {path.name}, which is packed; unpack it first (of packed files only .gz is read)")
            raise PromptsError(SOURCE, message)


def _format(path: Path) -> str:
    """The file's format by its ending, ``.gz`` left aside."""
    suffix = path.suffix.lower()
    if suffix in PACKED:
        how = S_(f", with zstd -d {path.name}") if suffix == ".zst" else ""
        raise PromptsError(SOURCE, f"{path.name} is packed; unpack it first{how} (of packed files only .gz is read)")
    kind = Path(path.stem).suffix.lower() if suffix == ".gz" else suffix
    if kind not in (LINE_FORMATS if suffix == ".gz" else FORMATS):
        raise PromptsError(SOURCE, f"the ending {path.suffix or '(none)'} is not known; use one of {', '.join(FORMATS)}")
    return kind


def _could_be_dataset(name: str) -> bool:
    looks_like_file = Path(name).suffix.lower() in (*FORMATS, *PACKED, ".gz") or name.startswith((".", "/", "~", "bundled/"))
    return not looks_like_file and bool(HUB_ID.fullmatch(name)) and not name.endswith((".", "-")) and "--" not in name and ".." not in name
