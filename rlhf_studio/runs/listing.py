"""The list of all runs, kept up to date cheaply: a run that ended long ago is not read again until one of its files changes."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_studio.runs import paths, status, studio
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import ENDED, Marks, RunStatus

if TYPE_CHECKING:  # which has a listing
    from rlhf_studio.runs.finding.folders import RunFolders

SETTLED_SECONDS = 2.0
"""Two changes within one tick of the file system's clock look like one, so a file that has just changed is not trusted."""
_FILES = (paths.DATABASE, f"{paths.DATABASE}-wal", f"{paths.DATABASE}-journal", paths.LOG)
_FREE = status.Locks(starting=False, alive=False)


@dataclass(frozen=True)
class _Signature:
    """Everything that the status of an ended run is made of, as far as it can be seen without opening its database."""

    folder: tuple[int, int]
    files: tuple[tuple[int, int, int] | None, ...]
    entry: studio.Entry | None
    name: str | None
    marks: Marks | None

    @property
    def settled(self) -> bool:
        """Whether the last change is long enough ago to be told from the next."""
        newest = max((file[0] for file in self.files if file), default=0)
        return time.time() - newest / 1e9 > SETTLED_SECONDS


class Listing:
    """The runs of a workspace for all who ask again and again, from several threads.

    An ended run whose files, queue entry, name and marks are as before is not opened: its row comes from memory (with the heartbeat's age
    as it was then). All others, and every run whose locks are taken, are read anew.
    """

    def __init__(self, folders: RunFolders) -> None:
        self._folders = folders
        self._lock = threading.Lock()
        self._known: dict[Path, tuple[_Signature, RunStatus]] = {}

    def runs(self) -> list[RunStatus]:
        """All runs, newest first. Raises StoreError when ``studio.db`` or the folder of runs cannot be read."""
        with self._lock:
            known = studio.read(self._folders.root)
            kept: dict[Path, tuple[_Signature, RunStatus]] = {}
            found = []
            for folder in self._folders.folders():
                before = _look(folder, known)
                remembered = self._known.get(folder)
                if before is not None and remembered is not None and remembered[0] == before:
                    run: RunStatus | None = remembered[1]
                else:
                    run = self._folders.listed(folder, known)
                if run is None:
                    continue
                found.append(run)
                if before is not None and before.settled and run.state in ENDED:
                    kept[folder] = (before, run)
            self._known = kept
        return sorted(found, key=lambda run: (run.created_at, run.run_id), reverse=True)


def _look(folder: Path, known: studio.Studio) -> _Signature | None:
    """The signature of a run that nobody works on; None for one that is alive, being started, or cannot be looked at."""
    try:
        if status.look_at_locks(folder) != _FREE:
            return None
        own = os.lstat(folder)
        files = tuple(_stat(f"{folder}/{name}") for name in _FILES)
    except (StoreError, OSError):
        return None
    run_id = folder.name
    given = known.entries.get(run_id), known.names.get(run_id), known.marks.get(run_id)
    return _Signature((own.st_dev, own.st_ino), files, *given)


def _stat(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
