"""The workspace: a folder of runs, the queue that starts them one at a time, and what people may do with them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rlhf_studio.config import StageConfig
from rlhf_studio.language import S_
from rlhf_studio.runs import checkpoints, launch, liveness, paths, people, studio
from rlhf_studio.runs.create import clear_left, clear_unfinished, create_run, replace_config
from rlhf_studio.runs.errors import AlreadyRunning, StoreError, store_error
from rlhf_studio.runs.finding.folders import RunFolders
from rlhf_studio.runs.finding.recordings import Recordings
from rlhf_studio.runs.lab import fork as forks
from rlhf_studio.runs.lab import names, resuming, sweeps
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Marks, Origin, RunStatus, StartMode
from rlhf_studio.runs.visitors.limits import FREE, Admission
from rlhf_studio.runs.visitors.starters import forget_names, forget_starter, forget_students, read_starters
from rlhf_studio.visible import refuse_hidden

MAX_NAME = 120  # characters
MAX_NOTE = 4000

Memory = tuple[int, int]
EstimateMemory = Callable[[StageConfig], Memory | None]
"""The least and the most bytes that a configuration needs at its peak; None when that is not known."""


class Workspace(RunFolders):
    """All runs below ``root``. Several apps may use one workspace at the same time; nothing is kept in memory.

    Every method raises StoreError when ``studio.db`` cannot be used. Methods that take a run id raise it (reason ``missing``)
    when there is no such run; and those that change a run or go on from it raise OnlyRead for a recording.

    Args:
        on_queued: called with the id of each run that is put into the queue, in the thread of whoever asks for it, before it starts.

    Attributes:
        deleted: is told the id of each run that :meth:`delete` has removed, while its folder is still there under another name: where
            the app is killed in between, :meth:`adopt` tells it. It may raise OSError.
    """

    def __init__(self, root: Path, recordings: Recordings | None = None, on_queued: Callable[[str], None] = lambda run_id: None):
        super().__init__(root, recordings)
        self.deleted: Callable[[str], None] = lambda run_id: None
        self._on_queued = on_queued

    # --- queueing ------------------------------------------------------------------------------------------------------

    def submit(
        self,
        config: StageConfig,
        name: str = "",
        memory: Memory | None = None,
        parent: str = "",
        files: Mapping[str, bytes] | None = None,
        by: Admission = FREE,
        run_id: str = "",
    ) -> str:
        """Create a run and queue it; returns its id, which is ``run_id`` where one is given.

        ``memory`` and ``files`` as in :func:`~rlhf_studio.runs.create.create_run`. ``parent`` is the id of the run that it is a variation
        of, if any: it begins at the beginning in that run's working folder, and an empty ``name`` becomes that run's with what is
        different; without a parent it becomes :func:`~rlhf_studio.runs.lab.names.new_name`. ``by``: who starts it. Raises StoreError,
        and ValueError for a long name.
        """
        _check_name(name)
        run_id = run_id or paths.new_run_id()
        folder = paths.run_dir(self.root, run_id)
        if parent:
            changes = {change.setting: change.new for change in forks.check_settings(self.own_dir(parent), None, config)}
            forks.fork_run(self.own_dir(parent), None, folder, config, name=name or self._fork_name(parent, None, changes), memory=memory)
        else:
            create_run(folder, config, name=name or self.name_for(config), memory=memory, files=files)
        self._queue_new(folder, "train", by)
        return run_id

    def name_for(self, config: StageConfig) -> str:
        """What a new run is called that is given no other name."""
        if config.name:
            return config.name
        runs = {run.run_id: run.name for run in self.runs()}
        return names.new_name(config, set(runs.values()), runs)

    def _queue_new(self, folder: Path, mode: StartMode, by: Admission = FREE) -> None:
        try:
            with studio.change(self.root) as connection:
                by.queue(connection, folder, mode)
                self._on_queued(folder.name)
        except StoreError:
            _remove(folder)  # nothing was started, so nothing is left behind
            with contextlib.suppress(StoreError):
                self._forget_starter(folder.name)
            raise

    def submit_sweep(
        self,
        config: StageConfig,
        axes: Mapping[str, Sequence[Any]],
        name: str = "",
        *,
        estimate: EstimateMemory | None = None,
        parent: str = "",
    ) -> list[str]:
        """Queue a run for each combination of values of one or two settings, 20 at most; returns their ids in that order.

        All of them are queued, or none is made; where the app is killed on the way, those that it had made show as interrupted, and a
        resume starts them. ``axes``: plain JSON values by dotted name. ``estimate`` gives the memory of a
        configuration, as :meth:`submit` takes it. ``parent`` is the id of the run that the sweep follows from, if any: its working
        folder is theirs, so that relative paths mean the same.

        Raises:
            ConfigError: for every value that a configuration does not take, and for a sweep that is too large.
            StoreError: a run could not be made or queued, or there is no such parent; ValueError: a long name.
        """
        _check_name(name)
        configs = sweeps.sweep_configs(config, axes)
        working_folder = RunReader(self.own_dir(parent)).working_folder() if parent else None
        sweep, made = f"sweep-{paths.new_run_id()}", list[str]()
        try:
            for values, own in configs:
                run_id, memory = paths.new_run_id(), estimate(own) if estimate else None
                origin = Origin(parent=parent, changes=values, sweep=sweep)
                named, folder = names.run_name(name, values), paths.run_dir(self.root, run_id)
                create_run(folder, own, name=named, memory=memory, origin=origin, working_folder=working_folder)
                made.append(run_id)
            with studio.change(self.root) as connection:
                for run_id in made:
                    studio.append(connection, run_id, "train", seq=0)
                    self._on_queued(run_id)
        except BaseException:
            for run_id in made:
                _remove(paths.run_dir(self.root, run_id))
            raise
        return made

    # --- going on --------------------------------------------------------------------------------------------------------

    def resume(self, run_id: str, *, from_start: bool = False, by: Admission = FREE) -> int:
        """Queue a run that was stopped, failed or was interrupted; returns its place in the queue.

        A run that never got going, or was made and not queued, is started from its beginning. Reads the files of the checkpoint that it
        will go on from. ``by``: who resumes it; whoever started it stays the one who did.

        Raises:
            NoCheckpoint: it has steps but no checkpoint to go on from, and ``from_start`` does not say that this is wanted.
            StoreError: the state does not allow it, its records were read from a file, or this person may not have one more run.
        """
        folder = self.own_dir(run_id)
        if not from_start and self.status(run_id).state in resuming.RESUMABLE:
            forks.refuse_only_read(RunReader(folder))
            checkpoints.where_to_resume(folder, read_again=False)  # before the queue is locked: it may read gigabytes
        with studio.change(self.root) as connection:
            known = studio.Studio(studio.load_entries(connection), {})
            reader = RunReader(folder)
            run = reader.status_in(known)
            if run.state not in resuming.RESUMABLE and not (run.state == "queued" and run_id not in known.entries):
                raise StoreError(f"The run {run_id} is {run.state}; only a stopped, failed or interrupted run can be resumed.", "state")
            forks.refuse_only_read(reader)
            reader.config()  # a run whose configuration is damaged would only fail again
            fresh = reader.stored()[0] == "queued" and run.origin.parent_step is None  # a fork has a checkpoint to go on from
            mode: StartMode = "train" if fresh else "from-start" if from_start else "resume"
            by.check(connection, folder)
            studio.append(connection, run_id, mode, seq=run.seq)
            self._on_queued(run_id)
            return studio.queue_position(connection, run_id)

    def fork_settings(self, run_id: str, step: int | None, changes: Mapping[str, Any]) -> StageConfig:
        """The settings that :meth:`fork` would give the new run, for the checks before a start. Raises ConfigError and StoreError."""
        return forks.forked_settings(self.own_dir(run_id), step, changes)

    def fork(
        self, run_id: str, step: int | None, changes: Mapping[str, Any], name: str = "", *, memory: tuple[int, int] | None = None
    ) -> str:
        """Queue a new run that goes on from a checkpoint of this one with other settings; returns its id.

        The run itself is only read, and may be running. With ``step`` None the new run is a variation: it begins at the beginning with
        this run's settings and the changes, and any setting may change.

        Args:
            changes: plain JSON values by dotted name.
            name: empty for this run's name with what is different.
            memory: as in :meth:`submit`.

        Raises:
            ConfigError: a change is not valid or not allowed, or no step is left to train.
            StoreError: no such checkpoint, it is damaged, or the disk is full; ValueError: a long name.
        """
        _check_name(name)
        config = self.fork_settings(run_id, step, changes)
        new = paths.new_run_id()
        folder = paths.run_dir(self.root, new)
        forks.fork_run(self.own_dir(run_id), step, folder, config, name=name or self._fork_name(run_id, step, changes), memory=memory)
        self._queue_new(folder, "train" if step is None else "resume")
        return new

    def trained_policy(self, run_id: str, step: int | None = None) -> str:
        """The folder of the policy that a run has trained: the setting ``model.policy`` of a new run that begins where this one got to.

        ``step`` is that of a checkpoint, the newest without it. The new run needs this one's folder as long as it trains.
        Raises StoreError when there is no such checkpoint.
        """
        return str(forks.trained_policy(self.own_dir(run_id), step))

    def _fork_name(self, run_id: str, step: int | None, changes: Mapping[str, Any]) -> str:
        return names.fork_name(self.status(run_id).name or run_id, step, changes)

    def go_on(self, run_id: str, steps: int) -> int:
        """Queue a finished run that is to have ``steps`` steps in all; returns its place in the queue.

        Cancelling it there gives it its old settings back.

        Raises:
            ConfigError: it has as many steps already.
            NoCheckpoint, AlreadyRunning, StoreError: it cannot go on, is being started, or has not finished.
        """
        return self._go_on_with(run_id, lambda run, reader: resuming.with_more_steps(run, reader.config(), steps))

    def resume_with(self, run_id: str, config: StageConfig) -> int:
        """Queue a stopped, failed or interrupted run that goes on from its newest checkpoint with these settings; returns its place.

        Cancelling it there gives it its old settings back. Raises ConfigError for what the checkpoint does not allow, and as :meth:`go_on`.
        """

        def given(run: RunStatus, reader: RunReader) -> StageConfig:
            resuming.check_resumed(run, reader, config)
            return config

        return self._go_on_with(run_id, given)

    def _go_on_with(self, run_id: str, given: Callable[[RunStatus, RunReader], StageConfig]) -> int:
        folder = self.own_dir(run_id)
        reader = RunReader(folder)
        forks.refuse_only_read(reader)
        given(self.status(run_id), reader)
        checkpoints.where_to_resume(folder, read_again=False)
        ticket = liveness.StartTicket(folder)
        ticket.take()  # nobody starts it while its settings change
        try:
            with studio.change(self.root) as connection:
                run = reader.status_in(studio.Studio(studio.load_entries(connection), {}))
                config = given(run, reader)  # as it is now that the queue is locked
                finished = run.state == "finished"
                studio.append(connection, run_id, "resume", seq=run.seq, replaced=not finished)
                self._on_queued(run_id)
                position = studio.queue_position(connection, run_id)
                if not finished:
                    replace_config(folder, config)  # before the commit: killed in between, it has not gone on, and resumes with these
            if finished:
                self._replace_queued(folder, run, config)  # after the commit: killed in between, it is still the run that finished
        finally:
            ticket.close()
        return position

    def _replace_queued(self, folder: Path, run: RunStatus, config: StageConfig) -> None:
        """Give a run that was just queued other settings; where they cannot be written, it leaves the queue. Raises StoreError."""
        try:
            replace_config(folder, config)
        except StoreError:
            with studio.change(self.root) as connection:
                studio.set_entry(connection, run.run_id, "cancelled", seq=run.seq)
            raise

    def force_stop(self, run_id: str) -> None:
        """End the engine of a run that does not stop when asked. Raises NotRunning and StoreError."""
        launch.force_stop(self.own_dir(run_id), S_("an operator"))

    def cancel(self, run_id: str) -> None:
        """Take a waiting run out of the queue; one that was waiting to be resumed is as before. Raises StoreError if it is not waiting."""
        self.refuse_recording(run_id)
        with studio.change(self.root) as connection:
            entry = studio.load_entries(connection).get(run_id)
            if entry is None or entry.state != "waiting":
                raise StoreError(f"The run {run_id} is not waiting in the queue. If it has started, stop it instead.", "state")
            studio.set_entry(connection, run_id, "cancelled", seq=entry.seq)
            resuming.take_back(self.root / paths.RUNS / run_id, entry)  # before the commit: killed in between, there is nothing to do

    def move(self, run_id: str, position: int) -> None:
        """Give a waiting run another place in the queue: 1 is the next to start; more than there are means the last.

        Raises StoreError when it is not waiting, and ValueError for a place below 1.
        """
        if position < 1:
            raise ValueError(f"a place in the queue is 1 or more, not {position}")
        self.refuse_recording(run_id)
        with studio.change(self.root) as connection:
            entry = studio.load_entries(connection).get(run_id)
            if entry is None or entry.state != "waiting":
                raise StoreError(f"The run {run_id} is not waiting in the queue, so it has no place to change.", "state")
            studio.move(connection, run_id, position)

    # --- changing ------------------------------------------------------------------------------------------------------

    def rename(self, run_id: str, name: str) -> None:
        """Give a run another name, at most 120 characters; an empty one goes back to the first. The id and the folder stay."""
        _check_name(name)
        self.own_dir(run_id)
        with studio.change(self.root) as connection:
            studio.set_name(connection, run_id, name.strip())

    def mark(self, run_id: str, *, tags: Sequence[str] | None = None, note: str | None = None, archived: bool | None = None) -> None:
        """Note something about a run; what is None stays as it is. The run's own folder is not written.

        Raises ValueError for more than 20 tags, a tag of more than 40 characters, a note of more than 4,000, or a character that nobody
        sees; and StoreError.
        """
        self.own_dir(run_id)
        if note is not None and len(note) > MAX_NOTE:
            raise ValueError(f"a note has at most {MAX_NOTE:,} characters, not {len(note):,}")
        refuse_hidden(note or "", S_("a note"), lines=True)
        for tag in tags or ():
            refuse_hidden(tag, "a tag")
        checked = None if tags is None else studio.checked_tags(tags)
        with studio.change(self.root) as connection:
            before = studio.load_marks(connection, run_id).get(run_id, Marks())
            marks = Marks(
                tags=before.tags if checked is None else checked,
                note=before.note if note is None else note,
                archived=before.archived if archived is None else archived,
            )
            studio.set_marks(connection, run_id, marks)

    def forget_students(self, *, names: bool = False) -> None:
        """Forget which students started runs; the names that they typed stay. With ``names``, forget the names too."""
        database = people.Database(self.root)
        with closing(database), studio.change(self.root):  # it waits for a start that is being queued, and finds it
            if database.exists():
                with database.forget() as connection:
                    (forget_names if names else forget_students)(connection)

    def _forget_starter(self, run_id: str) -> None:
        if run_id in read_starters(self.root, run_id):
            with closing(people.Database(self.root)) as database, database.forget() as connection:
                forget_starter(connection, run_id)

    def delete(self, run_id: str) -> None:
        """Remove a run and everything in its folder. A waiting run leaves the queue.

        The folder is renamed first, so that nobody ever sees half a run; links inside it are removed, never followed.

        Raises:
            AlreadyRunning: an engine works on it or is being started.
            StoreError: no such run, an export is being made in its folder, or it could not be removed.
        """
        folder = self.own_dir(run_id)
        ticket, lock = liveness.StartTicket(folder), liveness.EngineLock(folder)
        try:
            ticket.take()  # nobody starts it through an app meanwhile ...
            lock.acquire()  # ... and nobody from a shell
            if clear_left(folder / paths.EXPORTS, paths.EXPORT_PREFIX):
                raise StoreError(
                    f"The run {run_id} is being exported. Wait until that is done, or stop it, before deleting the run.", "state"
                )
            with studio.change(self.root) as connection:
                studio.forget(connection, run_id)
            self._forget_starter(run_id)
            trash = folder.parent / paths.trash_name(run_id)
            os.rename(folder, trash)
            self.deleted(run_id)
        except AlreadyRunning:
            raise AlreadyRunning(f"The run {run_id} is running or just starting. Stop it before deleting it.") from None
        except OSError as error:
            raise store_error(error, folder) from error
        finally:
            lock.release()
            ticket.close()
        _remove(trash)

    def adopt(self) -> list[str]:
        """Clean up when an app starts: remove what earlier apps left half made or half deleted.

        Returns the ids of the runs that are alive.
        """
        clear_unfinished(self.root / paths.RUNS)
        for entry in self._leftovers():
            self.deleted(paths.run_in_trash(entry.name))
            _remove(entry)
        return [folder.name for folder in self.folders() if liveness.is_alive(folder)]

    def _leftovers(self) -> list[Path]:
        runs = self.root / paths.RUNS
        return [entry for entry in runs.glob(f"{paths.TRASH_PREFIX}*") if entry.is_dir() and not entry.is_symlink()]


def _check_name(name: str) -> None:
    if len(name) > MAX_NAME:
        raise ValueError(S_(f"a run's name has at most {MAX_NAME} characters, not {len(name)}"))
    refuse_hidden(name, "a run's name")


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)  # unlinks links, never follows them
    except FileNotFoundError:
        return  # another app cleared it away
    except OSError as error:
        raise store_error(error, folder) from error
