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

from rlhf_studio.language import _
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
        raise NotPossible(_("There is no file {text!r} on the app's machine.").format(text=text[:200]))
    endings = (*ENDINGS, *(f"{ending}.gz" for ending in ENDINGS))
    if not path.name.lower().endswith(endings):
        raise NotPossible(_("{path} is not JSON Lines; its name must end in .jsonl or .jsonl.gz.").format(path=_named(path)))
    return path


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file. Raises NotPossible for what cannot be read, StoreError where the disk does not give it."""
    number, size = 0, 0
    try:
        with closing(_opened(path)) as file:
            while line := file.readline(LONGEST_ROW + 1):
                number, size = number + 1, size + len(line)
                if len(line) > LONGEST_ROW:
                    raise NotPossible(
                        _("Row {number} of {path} is longer than {longest_row} MB; use shorter texts.").format(
                            number=number, path=_named(path), longest_row=LONGEST_ROW // 1000000
                        )
                    )
                if size > MOST_BYTES or number > MOST_LINES:
                    raise NotPossible(
                        _("{path} has more than {most_bytes} MB or {most_lines:,} lines; split it.").format(
                            path=_named(path), most_bytes=MOST_BYTES // 1000000, most_lines=MOST_LINES
                        )
                    )
                yield _decoded(line, number, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise NotPossible(
            _("{path} is damaged behind row {number}: it cannot be unpacked ({error}).").format(
                path=_named(path), number=number, error=error
            )
        ) from error
    except (FileNotFoundError, NotADirectoryError):
        raise NotPossible(_("There is no file {path} on the app's machine.").format(path=_named(path))) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise NotPossible(_("There is no file {path} on the app's machine.").format(path=_named(path))) from None
        raise store_error(error, path) from error


def _opened(path: Path) -> BinaryIO:
    """The file, open. A pipe is not waited for. Raises OSError, and NotPossible for what is no file."""
    try:
        file = open_regular(path)
    except UnfitFile as error:
        raise NotPossible(_("{path} is no file.").format(path=_named(path))) from error
    if os.fstat(file.fileno()).st_size > MOST_BYTES:
        file.close()
        raise NotPossible(_("{path} has more than {most_bytes} MB; split it.").format(path=_named(path), most_bytes=MOST_BYTES // 1000000))
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
        raise NotPossible(_("{path} is UTF-16 text; save the file as UTF-8.").format(path=_named(path)))
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise NotPossible(
            _("Row {number} of {path} is not UTF-8 text (byte 0x{line:02x}); save the file as UTF-8.").format(
                number=number, path=_named(path), line=line[error.start]
            )
        ) from None


def _named(path: Path) -> str:
    """The path, short enough for a sentence."""
    text = str(path)
    return text if len(text) <= 200 else f"... {text[-200:]}"
