"""The runs of a workspace and the recordings that came with the program, by id. The one place that leads from an id to a folder."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.runs import paths, status, studio
from rlhf_studio.runs.errors import OnlyRead, StoreError, store_error
from rlhf_studio.runs.finding.recordings import Recordings
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, Marks, RunStatus


class RunFolders:
    """What there is to look at. Every method raises StoreError when ``studio.db`` cannot be used, and methods that take a run id raise
    it (reason ``missing``) when there is no such run.

    Args:
        root: the workspace.
        recordings: runs that are found by their id although they lie elsewhere; a run of the workspace with the same id comes first.
    """

    def __init__(self, root: Path, recordings: Recordings | None = None):
        self.root = Path(root).resolve()
        self.recordings = recordings or Recordings((), unlisted=())
        self._listing = Listing(self)

    def runs(self) -> list[RunStatus]:
        """All runs of the workspace, newest first. Folders that cannot be read as a run are listed as failed, with the cause.

        Whoever asks again is answered quickly: a run that ended long ago is read once (:class:`Listing`), for all who ask.
        """
        return self._listing.runs()

    def status(self, run_id: str) -> RunStatus:
        """One run as :meth:`runs` lists it: a damaged run gives its cause, it does not raise."""
        run = self.listed(self.run_dir(run_id), studio.read(self.root, run_id))
        if run is None:
            raise _missing(run_id)
        return run

    def run_dir(self, run_id: str) -> Path:
        """The folder of an existing run, or of a recording, to read it. Raises StoreError for an id that is not one, or that leads
        elsewhere, and for recordings that cannot be unpacked."""
        try:
            folder = paths.run_dir(self.root, run_id)
        except ValueError as error:
            raise StoreError(f"There is no such run: {error}.", "missing") from error
        if folder.is_dir():
            return folder
        if self.recordings.knows(run_id):
            return self.recordings.folder(run_id)
        raise _missing(run_id)

    def own_dir(self, run_id: str) -> Path:
        """As :meth:`run_dir`, to change the run or to go on from it. Raises OnlyRead for a recording, too."""
        self.refuse_recording(run_id)
        return self.run_dir(run_id)

    def is_recording(self, run_id: str) -> bool:
        """Whether this id leads to a recording, which need not be unpacked yet."""
        return self.recordings.knows(run_id) and not (self.root / paths.RUNS / run_id).is_dir()

    def refuse_recording(self, run_id: str) -> None:
        """Raises OnlyRead for the id of a recording."""
        if self.is_recording(run_id):
            raise OnlyRead()

    def exports_parent(self, run_id: str) -> Path:
        """The folder that holds the folder of a run's exports: the run's own, or for a recording one in the workspace."""
        return self.root / paths.RECORDINGS / run_id if self.is_recording(run_id) else self.run_dir(run_id)

    def reader(self, run_id: str) -> RunReader:
        """A reader of one run."""
        return RunReader(self.run_dir(run_id))

    def queue_position(self, run_id: str) -> int | None:
        """1 for the next to start; None when the run is not waiting."""
        return studio.read(self.root, run_id).queue_position(run_id)

    def folders(self) -> list[Path]:
        """Everything in the place where runs lie, runs or not, but no hidden entries (new and deleted runs)."""
        try:
            with os.scandir(self.root / paths.RUNS) as entries:
                return [Path(entry.path) for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise store_error(error, self.root) from error

    def listed(self, folder: Path, known: studio.Studio) -> RunStatus | None:
        """One of :meth:`folders` as :meth:`runs` lists it; None when it was deleted meanwhile. ``known``: the queue, names and marks."""
        try:
            created_at = folder.lstat().st_mtime
            paths.run_dir(self.root, folder.name)  # refuses links and names no run may have
            return RunReader(folder).status_in(known)
        except FileNotFoundError:  # deleted while the list was made
            return None
        except (StoreError, ValueError) as error:
            return status.broken(folder, error, created_at) if os.path.lexists(folder) else None


def _missing(run_id: str) -> StoreError:
    return StoreError(f"There is no run {run_id!r} in this workspace.", "missing")


# --- the list of all runs, kept up to date cheaply: a run that ended long ago is not read again until one of its files changes ---

SETTLED_SECONDS = 2.0
"""Two changes within one tick of the file system's clock look like one, so a file that has just changed is not trusted."""
_FILES = (paths.DATABASE, f"{paths.DATABASE}-wal", f"{paths.DATABASE}-journal", paths.LOG)
_FREE = status.Locks(starting=False, alive=False)


@dataclass(frozen=True)
class _Signature:
    """Everything that the status of an ended run is made of, as far as it can be seen without opening its database."""

    folder: tuple[int, int]
    files: tuple[tuple[int, int, int] | None, ...]
    entry: studio.QueueEntry | None
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
            settled: dict[Path, tuple[_Signature, RunStatus]] = {}
            runs = []
            for folder in self._folders.folders():
                before = _look(folder, known)
                remembered = self._known.get(folder)
                if before is not None and remembered is not None and remembered[0] == before:
                    run: RunStatus | None = remembered[1]
                else:
                    run = self._folders.listed(folder, known)
                if run is None:
                    continue
                runs.append(run)
                if before is not None and before.settled and run.state in ENDED:
                    settled[folder] = (before, run)
            self._known = settled
        return sorted(runs, key=lambda run: (run.created_at, run.run_id), reverse=True)


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
        file = os.lstat(path)
    except FileNotFoundError:
        return None
    return file.st_mtime_ns, file.st_size, file.st_ino
