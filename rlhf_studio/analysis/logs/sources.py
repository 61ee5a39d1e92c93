"""The files of a log and the records in them, batch by batch: JSON Lines and Parquet, a file or a folder of them, also while they grow.

What is read of a file is remembered, so that asking again gives what is new. A last line that is only half written is left for later.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rlhf_studio.analysis.logs.line import read_object
from rlhf_studio.analysis.logs.rows import Row, batches_of
from rlhf_studio.analysis.logs.shape import MARK, MOST_LINE_BYTES, MOST_LINES
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.language import S_
from rlhf_studio.regular import UnfitFile, open_regular
from rlhf_studio.visible import visible

LINES = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"
PARQUET_MARK = b"PAR1"
PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zX")  # gzip, zip, zstandard, bzip2, xz
PICKLED = b"\x80"  # the first byte of a pickle of protocol 2 or later; torch.save writes a zip
BATCH, BATCH_BYTES = 512, 8_000_000  # records and bytes that are read at once
WINDOW = 16_384  # bytes before the place where reading goes on, by which a file that was written anew is known
MOST_FILES, MOST_FOLDERS_DEEP = 200_000, 8
MOST_DEPTH = 200  # of lists and objects inside each other in others' records

LINE = {
    (False, False): S_("line {number}"),
    (False, True): S_("line {number}, {field}"),
    (True, False): S_("{file}, line {number}"),
    (True, True): S_("{file}, line {number}, {field}"),
}
"""Places by whether a file and a field are named."""
ROW = {
    (False, False): S_("row {number}"),
    (False, True): S_("row {number}, {field}"),
    (True, False): S_("{file}, row {number}"),
    (True, True): S_("{file}, row {number}, {field}"),
}


@dataclass
class GrowingFile:
    """One file, and how much of it was read.

    Attributes:
        name: as people call it: its path inside the folder, or empty where the log is a single file.
        half: the bytes behind the last full line, when it was read last.
        unended: the last line that was read had no end yet.
        restarts: how often it was written anew.
        mark: a hash of the last bytes that were read, see :data:`WINDOW`.
    """

    path: Path
    name: str = ""
    offset: int = 0
    count: int = 0
    size: int = -1
    inode: int = 0
    changed_at: int = 0
    half: int = 0
    unended: bool = False
    restarts: int = 0
    mark: bytes = b""
    unit: str = "line"

    def place(self, number: int, field: str = "") -> str:
        """Where a record or one of its fields stands, for people."""
        forms = ROW if self.unit == "row" else LINE
        return forms[bool(self.name), bool(field)].format(file=self.name, number=number, field=field)

    def look(self) -> bool:
        """Whether the file has changed since it was read last. A file that was written anew is read from its beginning."""
        found = os.stat(self.path)
        if self.size >= 0 and (found.st_ino != self.inode or found.st_size < self.size):
            self._restart()
        state = (found.st_size, found.st_ino, found.st_mtime_ns)
        changed = state != (self.size, self.inode, self.changed_at)
        self.size, self.inode, self.changed_at = state
        return changed

    def _restart(self) -> None:
        self.offset = self.count = 0
        self.unended = False
        self.restarts += 1

    def _before(self, file: BinaryIO) -> bytes:
        """The last bytes that were read. A file that has others there was written anew in its place, and is read from its beginning."""
        size = min(WINDOW, self.offset)
        before = os.pread(file.fileno(), size, self.offset - size)
        if self.offset == 0 or _mark_of(before) == self.mark:
            return before
        self._restart()
        return b""

    def batches(self, last: bool) -> Iterator[list[Row]]:
        """What is new, in batches. ``last``: nothing more is written to it, so that a last line without an end counts.

        Raises ConfigError for a file that is none to read, OSError for one that cannot be.
        """
        with open_file(self.path, self.name) as file:
            if file.read(4) == PARQUET_MARK:
                yield from self._rows(file, last)
            else:
                yield from self._lines(file, last)

    def _lines(self, file: BinaryIO, last: bool) -> Iterator[list[Row]]:
        before = self._before(file)
        file.seek(self.offset)
        batch: list[Row] = []
        used = self.half = 0
        given = (self.offset, self.count, self.unended)
        while data := self._next_line(file, given):
            if len(data) > MOST_LINE_BYTES or self.count >= MOST_LINES:
                lines = S_(f"at most {MOST_LINES:,} lines")
                limit = S_(f"a line of at most {MOST_LINE_BYTES:,} bytes") if self.count < MOST_LINES else lines
                raise ConfigError([Problem(self.place(self.count + 1), f"the file is too long here: {limit} is read")])
            row, ends = self._row(data), data.endswith(b"\n")
            if not ends and row is not None and row.problem and (not last or data.lstrip().startswith(b"{")):
                self.half = len(data)  # the beginning of an object is never an object itself
                break
            self.offset += len(data)
            before = (before + data)[-WINDOW:]
            self.count += not (self.unended and not data.strip())
            self.unended = not ends
            used += len(data)
            batch += [] if row is None else [row]
            if len(batch) >= BATCH or used >= BATCH_BYTES:
                self.mark = _mark_of(before)
                yield batch
                batch, used, given = [], 0, (self.offset, self.count, self.unended)
        self.mark = _mark_of(before)
        if batch:
            yield batch

    def _next_line(self, file: BinaryIO, given: tuple[int, int, bool]) -> bytes:
        """One more line. Where that fails, reading goes on another time behind ``given``, the last that anybody has been given."""
        try:
            return file.readline(MOST_LINE_BYTES + 1)
        except OSError:
            self.offset, self.count, self.unended = given
            raise

    def _row(self, data: bytes) -> Row | None:
        plain, number = data.removeprefix(MARK), self.count + 1
        if not plain.strip():
            return None
        try:
            return Row(number, read_object(plain, MOST_DEPTH))
        except ValueError as error:
            return Row(number, None, str(error))

    def _rows(self, file: BinaryIO, last: bool) -> Iterator[list[Row]]:
        """Of a Parquet file, which is there as a whole or not at all: its footer is written last."""
        import pyarrow
        from pyarrow.parquet import ParquetFile

        self._before(file)
        self.half, self.unit = 0, "row"
        if self.offset:
            return
        given = self.count  # of a file that could not be read to its end
        try:
            table = ParquetFile(file)
            if table.metadata.num_rows > MOST_LINES:
                raise ConfigError([Problem(self.name, S_(f"the file is too long: at most {MOST_LINES:,} rows are read"))])
            for rows in batches_of(table, BATCH, BATCH_BYTES):
                if new := [row for row in rows if row.number > given]:
                    yield new
                self.count = max(given, rows[-1].number)
            self.offset = os.fstat(file.fileno()).st_size
            size = min(WINDOW, self.offset)
            self.mark = _mark_of(os.pread(file.fileno(), size, self.offset - size))
        except MemoryError:
            raise
        except (pyarrow.ArrowException, OSError) as error:
            if getattr(error, "errno", None):
                raise  # the file could not be read; pyarrow's own errors have no number
            self.half = 1
            if last and not self.name:
                why = str(error).splitlines()[0][:120]
                raise ConfigError([Problem("", f"{self.path} is no whole Parquet file ({why}); open it when it is written")]) from error


def _mark_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def open_file(path: Path, name: str = "") -> BinaryIO:
    """The file. Raises ConfigError for what is no ordinary file or holds what is not read, OSError for what cannot be read."""
    try:
        file = open_regular(path)
    except UnfitFile as error:
        raise ConfigError([Problem("", f"{path} is not a file; give a file of JSON Lines or Parquet, or a folder of them")]) from error
    head = os.pread(file.fileno(), 4, 0)
    why = "it is compressed; unpack it first" if head.startswith(PACKED) else ""
    if head.startswith(PICKLED) or (head.startswith(b"PK") and path.suffix in (".pt", ".pth", ".bin")):
        why = "it looks like a pickle (torch.save), which can run code and is not opened; write one JSON object in each line"
    elif not why and path.suffix == PARQUET and len(head) == len(PARQUET_MARK) and head != PARQUET_MARK:
        why = "it is not a Parquet file, though its name says so"
    if why:
        file.close()
        raise ConfigError([Problem(name, why if name else f"{path}: {why}")])
    return file


def cannot_be_read(path: Path, error: OSError | ValueError) -> ConfigError:
    """One sentence about a file or a folder."""
    named = getattr(error, "filename", None) or path
    return ConfigError([Problem("", f"{named} cannot be read: {getattr(error, 'strerror', None) or error}")])


def files_of(path: Path) -> list[GrowingFile]:
    """The files of a log, in the order of the numbers in their names: the file itself, or those in and below a folder.

    Raises ConfigError for a folder with too many, OSError for one that cannot be read.
    """
    if not path.is_dir():
        return [GrowingFile(path)]
    try:
        names = list(_names(path, "", 0))
    except FileNotFoundError:  # a folder that is being removed
        names = []
    if len(names) > MOST_FILES:
        raise ConfigError([Problem("", f"{path} has more than {MOST_FILES:,} files; give the folder of the rollouts")])
    return [GrowingFile(path / name, visible(name, lines=False)) for name in sorted(names, key=_in_order)]


def _names(folder: Path, before: str, deep: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if deep < MOST_FOLDERS_DEEP:
                    yield from _names(folder / entry.name, f"{before}{entry.name}/", deep + 1)
            elif entry.name.endswith((*LINES, PARQUET)) and _is_file(entry):
                yield before + entry.name


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, or a link to one. One whose links go round in a circle is none."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _in_order(name: str) -> list[tuple[int, int, str]]:
    """Numbers by their size: 2.jsonl stands before 10.jsonl."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"([0-9]{1,18})", name) if part]
