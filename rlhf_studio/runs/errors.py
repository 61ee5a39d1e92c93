"""What can go wrong with the store, each as one plain sentence that a person can act on."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from rlhf_studio.language import S_
from rlhf_studio.regular import UnfitFile

FULL_BYTES = 65536  # less than what SQLite asks for at once beside a database

Reason = Literal[
    "full",
    "io",
    "busy",
    "damaged",
    "read-only",
    "missing",
    "in-the-way",
    "version",
    "exists",
    "alive",
    "not-running",
    "absent",
    "state",
    "from-start",
    "gone",
    "limit",
]


class StoreError(Exception):
    """The store cannot do what was asked.

    Attributes:
        reason: a stable short word for code: ``full`` (disk), ``io``, ``busy``, ``damaged``, ``read-only``, ``missing`` (no run
            there), ``in-the-way`` (a file where a folder must be), ``version`` (written by a newer program), ``exists``,
            ``alive``, ``not-running``, ``absent`` (no such record), ``state`` (the run's state does not allow it),
            ``from-start`` (it could only start again from step 0), ``gone`` (the folder was deleted, moved or replaced while the
            engine worked in it), ``limit`` (a visitor has or wants more than visitors may).
    """

    def __init__(self, message: str, reason: Reason = "io"):
        super().__init__(message)
        self.reason: Reason = reason


@contextmanager
def with_remedy(remedy: str) -> Iterator[None]:
    """A block in which an error of something damaged also says what a person can do about it: ``remedy``, one sentence."""
    try:
        yield
    except StoreError as error:
        if error.reason != "damaged":
            raise
        raise StoreError(f"{error} {remedy}", "damaged") from error


class RunExists(StoreError):
    """A new run was asked for in a folder that already holds something."""

    def __init__(self, message: str):
        super().__init__(message, "exists")


class AlreadyRunning(StoreError):
    """An engine works on this run already."""

    def __init__(self, message: str):
        super().__init__(message, "alive")


class NotRunning(StoreError):
    """The run has no engine that could carry out the request."""

    def __init__(self, message: str):
        super().__init__(message, "not-running")


RECORDING_ENDED = S_("The recording ended")
"""How the last line of a run's log begins where the recording of somebody else's training could not store why it ended."""
PROGRAM_ENDED = S_("The program ended")
"""How it begins where a program ended and had not closed its recording."""


class RunGone(StoreError):
    """The run folder was deleted, moved or replaced while an engine worked in it; nothing more may be written there."""

    PHRASE = S_("was deleted, moved or replaced while the engine worked in it")  # what is left of it in a moved folder is the log

    def __init__(self, run_dir: Path):
        super().__init__(S_(f"The run folder {run_dir} {self.PHRASE}."), "gone")


class OnlyRead(StoreError):
    """A recording was to be changed, or to be gone on from."""

    def __init__(self) -> None:
        super().__init__(
            S_(
                "This is a recording that came with the program: it cannot be changed, and nothing can go on from it. "
                "Its settings can be copied to Train, for a run of your own."
            ),
            "state",
        )


# SQLite's primary result codes (sqlite.org/rescode.html); Python 3.10 has no names for them.
_SQLITE_REASONS: dict[int, Reason] = {
    3: "read-only",  # SQLITE_PERM
    5: "busy",  # SQLITE_BUSY
    6: "busy",  # SQLITE_LOCKED
    8: "read-only",  # SQLITE_READONLY
    11: "damaged",  # SQLITE_CORRUPT
    13: "full",  # SQLITE_FULL
    26: "damaged",  # SQLITE_NOTADB
}

# And its errors carry no codes; the texts have been the same in SQLite since version 3.7.
_SQLITE_TEXTS: tuple[tuple[str, Reason], ...] = (
    ("disk is full", "full"),
    ("is locked", "busy"),
    ("malformed", "damaged"),
    ("not a database", "damaged"),
    ("no such table", "damaged"),
    ("no such column", "damaged"),
    ("could not decode", "damaged"),
    ("readonly database", "read-only"),
)

_OS_REASONS: dict[int, Reason] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read-only",
    errno.EACCES: "read-only",
    errno.EPERM: "read-only",
    errno.ENOENT: "missing",
    errno.ENOTDIR: "in-the-way",
    errno.EEXIST: "in-the-way",
}

_SENTENCES: dict[Reason, str] = {
    "full": S_("The disk is full: {path} could not be written. Free some space, then try again; what was saved before is kept."),
    "io": S_("Reading or writing {path} failed ({detail}). Check the disk, then try again."),
    "busy": S_("{path} is in use by another program and did not become free in time. Try again in a moment."),
    "damaged": S_("{path} is damaged or was not written by RLHF Studio ({detail})."),
    "read-only": S_("{path} may not be written or opened ({detail}). Check the permissions of the folder."),
    "missing": S_("{path} does not exist or was removed."),
    "in-the-way": S_("{path} cannot be a folder here: a file is in the way ({detail}). Choose another place."),
}


def sqlite_reason(error: sqlite3.Error) -> Reason:
    """The short word for an error of SQLite, from its code where Python has one, else from its text."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and (code & 0xFF) in _SQLITE_REASONS:
        return _SQLITE_REASONS[code & 0xFF]
    text = str(error).lower()
    return next((reason for part, reason in _SQLITE_TEXTS if part in text), "io")


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < FULL_BYTES
    except OSError:
        return False


def store_error(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """Put an error of SQLite or of the file system into a sentence that names the file, the cause and the next step."""
    if isinstance(error, UnfitFile):
        return StoreError(_SENTENCES["damaged"].format(path=path, detail=error.strerror), "damaged")
    reason = sqlite_reason(error) if isinstance(error, sqlite3.Error) else _OS_REASONS.get(error.errno or 0, "io")
    if reason == "io" and _is_full(path):  # some of SQLite's files cannot say why they do not grow
        reason = "full"
    return StoreError(_SENTENCES[reason].format(path=path, detail=error), reason)
