"""The workspace: a folder of runs, the queue that starts them one at a time, and what people may do with them."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from rlhf_studio.config import RunConfig
from rlhf_studio.runs import checkpoints, launch, liveness, paths, status, studio
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import AlreadyRunning, StoreError, store_error
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.start import StartMode

MAX_NAME = 120


class Workspace:
    """All runs below ``root``. Several apps may use one workspace at the same time; nothing is kept in memory.

    Every method raises StoreError when ``studio.db`` cannot be used. Methods that take a run id raise it (reason ``missing``)
    when there is no such run.
    """

    def __init__(self, root: Path):
        self.root = Path(root).resolve()

    # --- looking -------------------------------------------------------------------------------------------------------

    def runs(self) -> list[RunStatus]:
        """All runs, newest first. Folders that cannot be read as a run are listed as failed, with the cause."""
        known = studio.read(self.root)
        found = [self.listed(folder, known) for folder in self.folders()]
        return sorted((run for run in found if run is not None), key=lambda run: (run.created_at, run.run_id), reverse=True)

    def status(self, run_id: str) -> RunStatus:
        """One run as :meth:`runs` lists it: a damaged run gives its cause, it does not raise."""
        run = self.listed(self.run_dir(run_id), studio.read(self.root, run_id))
        if run is None:
            raise _missing(run_id)
        return run

    def run_dir(self, run_id: str) -> Path:
        """The folder of an existing run. Raises StoreError for an id that is not one, or that leads elsewhere."""
        try:
            folder = paths.run_dir(self.root, run_id)
        except ValueError as error:
            raise StoreError(f"There is no such run: {error}.", "missing") from error
        if not folder.is_dir():
            raise _missing(run_id)
        return folder

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
        """One of :meth:`folders` as :meth:`runs` lists it; None when it was deleted meanwhile. ``known``: the queue and the names."""
        try:
            created_at = folder.lstat().st_mtime
            paths.run_dir(self.root, folder.name)  # refuses links and names no run may have
            return RunReader(folder).status_in(known)
        except FileNotFoundError:  # deleted while the list was made
            return None
        except (StoreError, ValueError) as error:
            return status.broken(folder, error, created_at) if os.path.lexists(folder) else None

    # --- queueing ------------------------------------------------------------------------------------------------------

    def submit(self, config: RunConfig, name: str = "", memory: tuple[int, int] | None = None) -> str:
        """Create a run and put it at the end of the queue; returns its id. ``memory`` as in :func:`~rlhf_studio.runs.create.create_run`.

        Raises StoreError, and ValueError for a long name.
        """
        _check_name(name)
        run_id = paths.new_run_id()
        folder = paths.run_dir(self.root, run_id)
        create_run(folder, config, name=name, memory=memory)
        try:
            with studio.change(self.root) as connection:
                studio.append(connection, run_id, "train", seq=0)
        except StoreError:
            _remove(folder)  # nothing was started, so nothing is left behind
            raise
        return run_id

    def resume(self, run_id: str, *, from_start: bool = False) -> int:
        """Queue a run that was stopped, failed or was interrupted; returns its place in the queue.

        A run that never got going is started from its beginning. Reads the files of the checkpoint that it will go on from.

        Raises:
            NoCheckpoint: it has steps but no checkpoint to go on from, and ``from_start`` does not say that this is wanted.
            StoreError: the state does not allow it.
        """
        folder = self.run_dir(run_id)
        if not from_start and self.status(run_id).state in ("stopped", "failed", "interrupted"):
            checkpoints.where_to_resume(folder, read_again=False)  # before the queue is locked: it may read gigabytes
        with studio.change(self.root) as connection:
            known = studio.Studio(studio.load_entries(connection), {})
            reader = RunReader(folder)
            run = reader.status_in(known)
            if run.state not in ("stopped", "failed", "interrupted"):
                raise StoreError(f"The run {run_id} is {run.state}; only a stopped, failed or interrupted run can be resumed.", "state")
            reader.config()  # a run whose configuration is damaged would only fail again
            mode: StartMode = "train" if reader.stored()[0] == "queued" else "from-start" if from_start else "resume"
            studio.append(connection, run_id, mode, seq=run.seq)
            position = studio.Studio(studio.load_entries(connection), {}).queue_position(run_id)
        assert position is not None
        return position

    def force_stop(self, run_id: str) -> None:
        """End the engine of a run that does not stop when asked. Raises NotRunning and StoreError."""
        launch.force_stop(self.run_dir(run_id), "an operator")

    def cancel(self, run_id: str) -> None:
        """Take a waiting run out of the queue; one that was waiting to be resumed is as before. Raises StoreError if it is not waiting."""
        with studio.change(self.root) as connection:
            entry = studio.load_entries(connection).get(run_id)
            if entry is None or entry.state != "waiting":
                raise StoreError(f"The run {run_id} is not waiting in the queue. If it has started, stop it instead.", "state")
            studio.set_entry(connection, run_id, "cancelled", seq=entry.seq)

    # --- changing ------------------------------------------------------------------------------------------------------

    def rename(self, run_id: str, name: str) -> None:
        """Give a run another name, at most 120 characters; an empty one goes back to the first. The id and the folder stay."""
        _check_name(name)
        self.run_dir(run_id)
        with studio.change(self.root) as connection:
            studio.set_name(connection, run_id, name.strip())

    def delete(self, run_id: str) -> None:
        """Remove a run and everything in its folder. A waiting run leaves the queue.

        The folder is renamed first, so that nobody ever sees half a run; links inside it are removed, never followed.

        Raises:
            AlreadyRunning: an engine works on it or is being started.
            StoreError: no such run, or it could not be removed.
        """
        folder = self.run_dir(run_id)
        ticket, lock = liveness.StartTicket(folder), liveness.EngineLock(folder)
        try:
            ticket.take()  # nobody starts it through an app meanwhile ...
            lock.acquire()  # ... and nobody from a shell
            with studio.change(self.root) as connection:
                studio.forget(connection, run_id)
            trash = folder.parent / f"{paths.TRASH_PREFIX}{run_id}-{secrets.token_hex(4)}"
            os.rename(folder, trash)
        except AlreadyRunning:
            raise AlreadyRunning(f"The run {run_id} is running or just starting. Stop it before deleting it.") from None
        except OSError as error:
            raise store_error(error, folder) from error
        finally:
            lock.release()
            ticket.close()
        _remove(trash)

    def adopt(self) -> list[str]:
        """What an app does when it starts: clear away what an earlier one left half deleted. Returns the ids of the runs that are alive."""
        for entry in self._leftovers():
            _remove(entry)
        return [folder.name for folder in self.folders() if liveness.is_alive(folder)]

    def _leftovers(self) -> list[Path]:
        runs = self.root / paths.RUNS
        return [entry for entry in runs.glob(f"{paths.TRASH_PREFIX}*") if entry.is_dir() and not entry.is_symlink()]


def _missing(run_id: str) -> StoreError:
    return StoreError(f"There is no run {run_id!r} in this workspace.", "missing")


def _check_name(name: str) -> None:
    if len(name) > MAX_NAME:
        raise ValueError(f"a run's name has at most {MAX_NAME} characters, not {len(name)}")


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)  # unlinks links, never follows them
    except FileNotFoundError:
        return  # another app cleared it away
    except OSError as error:
        raise store_error(error, folder) from error
