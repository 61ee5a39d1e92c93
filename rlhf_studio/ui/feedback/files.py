"""Files of JSON Lines on the app's machine, read within limits: a row that is too long is never held in memory as a whole."""

from __future__ import annotations

import errno
import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from rlhf_studio.regular import UnfitFile, open_regular
from rlhf_studio.runs.errors import store_error
from rlhf_studio.runs.feedback.records import MOST_ITEMS
from rlhf_studio.runs.feedback.store import NotPossible

ENDINGS = (".jsonl", ".json", ".ndjson", ".txt")
MOST_BYTES = 500_000_000  # of a file, and of what it unpacks to
LONGEST_ROW = 8_000_000  # bytes; nine responses and a prompt of the greatest length need less
MOST_LINES = 10 * MOST_ITEMS  # blank ones too


def file_at(text: str) -> Path:
    """The file that a person names; ``~`` is the home of whoever runs the app. Raises NotPossible where there is no file of JSON Lines."""
    path = Path(os.path.expanduser(text))
    if "\0" in text or not path.is_absolute() and text.startswith("~"):
        raise NotPossible(f"There is no file {text[:200]!r} on the app's machine.")
    endings = (*ENDINGS, *(f"{ending}.gz" for ending in ENDINGS))
    if not path.name.lower().endswith(endings):
        raise NotPossible(f"{_named(path)} is not JSON Lines; its name must end in .jsonl or .jsonl.gz.")
    return path


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file. Raises NotPossible for what cannot be read, StoreError where the disk does not give it."""
    number, size = 0, 0
    try:
        with closing(_opened(path)) as file:
            while line := file.readline(LONGEST_ROW + 1):
                number, size = number + 1, size + len(line)
                if len(line) > LONGEST_ROW:
                    raise NotPossible(f"Row {number} of {_named(path)} is longer than {LONGEST_ROW // 1_000_000} MB; use shorter texts.")
                if size > MOST_BYTES or number > MOST_LINES:
                    raise NotPossible(f"{_named(path)} has more than {MOST_BYTES // 1_000_000} MB or {MOST_LINES:,} lines; split it.")
                yield _decoded(line, number, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise NotPossible(f"{_named(path)} is damaged behind row {number}: it cannot be unpacked ({error}).") from error
    except (FileNotFoundError, NotADirectoryError):
        raise NotPossible(f"There is no file {_named(path)} on the app's machine.") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise NotPossible(f"There is no file {_named(path)} on the app's machine.") from None
        raise store_error(error, path) from error


def _opened(path: Path) -> BinaryIO:
    """The file, open. A pipe is not waited for. Raises OSError, and NotPossible for what is no file."""
    try:
        file = open_regular(path)
    except UnfitFile as error:
        raise NotPossible(f"{_named(path)} is no file.") from error
    if os.fstat(file.fileno()).st_size > MOST_BYTES:
        file.close()
        raise NotPossible(f"{_named(path)} has more than {MOST_BYTES // 1_000_000} MB; split it.")
    return _Unpacked(file) if path.suffix.lower() == ".gz" else file  # type: ignore[return-value]


class _Unpacked(gzip.GzipFile):
    """What a packed file holds; closes the file with itself."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._packed = file

    def close(self) -> None:
        """Close both."""
        super().close()
        self._packed.close()


def _decoded(line: bytes, number: int, path: Path) -> str:
    if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise NotPossible(f"{_named(path)} is UTF-16 text; save the file as UTF-8.")
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise NotPossible(
            f"Row {number} of {_named(path)} is not UTF-8 text (byte 0x{line[error.start]:02x}); save the file as UTF-8."
        ) from None


def _named(path: Path) -> str:
    """The path, short enough for a sentence."""
    text = str(path)
    return text if len(text) <= 200 else f"... {text[-200:]}"
