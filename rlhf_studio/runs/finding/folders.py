"""The runs of a workspace and the recordings that came with the program, by id. The one place that leads from an id to a folder."""

from __future__ import annotations

import os
from pathlib import Path

from rlhf_studio.runs import paths, status, studio
from rlhf_studio.runs.errors import OnlyRead, StoreError, store_error
from rlhf_studio.runs.finding.recordings import Recordings
from rlhf_studio.runs.listing import Listing
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RunStatus


class RunFolders:
    """What there is to look at. Every method raises StoreError when ``studio.db`` cannot be used, and methods that take a run id raise
    it (reason ``missing``) when there is no such run.

    Args:
        root: the workspace.
        recordings: runs that are found by their id although they lie elsewhere; a run of the workspace with the same id comes first.
    """

    def __init__(self, root: Path, recordings: Recordings | None = None):
        self.root = Path(root).resolve()
        self.recordings = recordings or Recordings(())
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

    def exports_place(self, run_id: str) -> Path:
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
