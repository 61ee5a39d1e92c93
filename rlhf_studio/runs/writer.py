"""The engine's side of the run folder: the only writer of run data, and the engine's heartbeat.

Every method is one transaction; when it has returned, its data survives the death of the process and of the machine
(synchronous=FULL). Every transaction makes ``seq`` grow by one, so that viewers see at a glance whether anything is new.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rlhf_studio.language import S_
from rlhf_studio.runs import create, liveness, paths, rows, schema
from rlhf_studio.runs.errors import AlreadyRunning, RunGone, StoreError, store_error
from rlhf_studio.runs.records import (
    ALIVE,
    ENDED,
    Command,
    EventRecord,
    Probe,
    ProbeScore,
    Scratch,
    SettingChange,
    State,
    StepRecord,
    WatchRecord,
)
from rlhf_studio.runs.values import encode_number, encode_text

JOURNAL_SECONDS = 2.0


class RunWriter:
    """Writes one run. Open it right after the :class:`~rlhf_studio.runs.liveness.EngineLock` was acquired.

    May be used from several threads; calls wait for each other. After a StoreError nothing of that call is stored and the
    writer stays usable, so that a call may be repeated once the cause (a full disk) is gone. When the run folder was deleted,
    moved or replaced, every call raises RunGone and writes nothing.
    """

    def __init__(self, run_dir: Path, *, wait_for_disk: bool = True):
        """Open the database, bring it to this version's format, set the state "loading", and drop requests to an earlier engine.

        Args:
            wait_for_disk: at the end of each transaction. Without, a power cut may lose the last ones, but a kill loses none: for a run
                that can be made again from a file.

        Raises:
            AlreadyRunning: another process holds the engine lock.
            StoreError: no run there, damaged, written by a newer program, or the disk is full. When the disk is full, the run's state
                becomes ``failed``, if the space that was kept free for this is enough to write it.
        """
        self.run_dir = Path(run_dir).resolve()
        self.path = self.run_dir / paths.DATABASE
        self._lock, self._synchronous = threading.RLock(), "FULL" if wait_for_disk else "NORMAL"
        self._metric_ids: dict[str | bytes, int] = {}
        holder = liveness.holder_pid(self.run_dir)
        if holder not in (None, os.getpid()):
            raise AlreadyRunning(f"Another engine (process {holder}) is working on {self.run_dir}.")
        self._connection = schema.connect(self.path)
        self._database_file = schema.FileIdentity(self.path)
        try:
            self._begin_session()
        except StoreError as error:
            try:
                if error.reason == "full" and self._give_up_reserve():
                    self._store_state("failed", "", None, str(error), None)
            finally:
                self._connection.close()
            raise

    def _begin_session(self) -> None:
        schema.migrate(self._connection, self.path)
        try:
            schema.set_journal(self._connection, "wal", JOURNAL_SECONDS)
            self._connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        except sqlite3.Error as error:
            raise store_error(error, self.path) from error
        if not (self.run_dir / create.RESERVE).exists():
            try:
                create.write_reserve(self.run_dir)
            except OSError as error:
                raise store_error(error, self.run_dir) from error
        with self._transaction() as connection:
            connection.execute("DELETE FROM scratch")
            _expire_commands(connection, S_("a new start of the run"), early_too=False)
            connection.execute("UPDATE commands SET early = 0 WHERE early = 1")
            # In this same transaction: the lock is held again, so readers would believe a row that a killed engine left as "running".
            connection.execute(
                """UPDATE run SET pid = ?, state = 'loading', phase = 'Starting', fraction = NULL, cause = '',
                   started_at = coalesce(started_at, ?), ended_at = NULL""",
                (os.getpid(), time.time()),
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self.check_folder()
            try:
                with schema.transaction(self._connection, self.path) as connection:
                    yield connection
                    connection.execute("UPDATE run SET seq = seq + 1")
            except BaseException:
                self._metric_ids.clear()  # names that were new in the undone transaction are not stored
                raise

    def check_folder(self) -> None:
        """Raises RunGone when the run folder is not where it was opened any more: nothing may be written there then."""
        if not self._database_file.is_ours():
            raise RunGone(self.run_dir)

    # --- state ---------------------------------------------------------------------------------------------------------

    def set_state(self, state: State, phase: str = "", fraction: float | None = None, cause: str = "", device: str | None = None) -> None:
        """Say what the run is doing.

        Args:
            state: loading, running, paused, finished, stopped or failed; interrupted is derived and never stored.
            phase: what is going on, for people.
            fraction: progress of the phase, 0 to 1; None when unknown.
            cause: why it failed, with the next step.
            device: what it computes on, e.g. ``cpu``; None keeps the last.

        On a full disk the run's reserve is given up for its last state, so that the cause of the failure is kept. Raises
        StoreError, and ValueError for a state that may not be stored.
        """
        if state not in (*ALIVE, "finished", "stopped", "failed"):
            raise ValueError(f"the state {state!r} is not for an engine to store")
        if state in ENDED:
            self._with_reserve(lambda: self._store_state(state, phase, fraction, cause, device))
        else:
            self._store_state(state, phase, fraction, cause, device)

    def _with_reserve(self, store: Callable[[], None]) -> None:
        """Store how the run ended: where the disk is full, delete the run's reserve and try once more."""
        try:
            store()
        except StoreError as error:
            if error.reason != "full" or not self._give_up_reserve():
                raise
            store()

    def _store_state(self, state: State, phase: str, fraction: float | None, cause: str, device: str | None) -> None:
        now = time.time()
        progress = None if fraction is None or math.isnan(fraction) else min(1.0, max(0.0, float(fraction)))
        with self._transaction() as connection:
            connection.execute(
                """UPDATE run SET state = ?, phase = ?, fraction = ?, cause = ?, device = coalesce(?, device), ended_at = ?""",
                (
                    state,
                    encode_text(phase),
                    progress,
                    encode_text(cause),
                    None if device is None else encode_text(device),
                    now if state in ENDED else None,
                ),
            )
            connection.execute("UPDATE heartbeat SET at = ?", (now,))
            if state in ENDED:  # whatever was asked too late must not stop the run when it is resumed one day
                connection.execute("DELETE FROM scratch")
                _expire_commands(connection, S_("the end of the run"), early_too=True)

    def plan(self, total_steps: int) -> None:
        """Say how many steps the run is to have; another number than at its creation when its settings have changed. Raises StoreError."""
        with self._transaction() as connection:
            connection.execute("UPDATE run SET total_steps = ?", (total_steps,))

    def counts_words(self) -> None:
        """Say that the run's responses are texts without tokens, so that its lengths count words. Raises StoreError."""
        with self._transaction() as connection:
            rows.write_origin(connection, replace(rows.read_run(connection).origin, words=True))

    def _give_up_reserve(self) -> bool:
        reserve = self.run_dir / create.RESERVE
        existed = reserve.exists()
        reserve.unlink(missing_ok=True)
        return existed

    def estimated_memory(self) -> tuple[int, int] | None:
        """The least and the most bytes that were estimated before the start; None without an estimate. Raises StoreError."""
        with self._lock:
            try:
                low, high = self._connection.execute("SELECT memory_low, memory_high FROM run").fetchone()
            except sqlite3.Error as error:
                raise store_error(error, self.path) from error
        return None if low is None or high is None else (int(low), int(high))

    # --- data ----------------------------------------------------------------------------------------------------------

    def commit_step(self, record: StepRecord) -> None:
        """Store all of one step: metrics, rollouts with their token arrays, watched answers, events, and the run's step.

        They become visible together or not at all, and replace what the step left behind before a resume. Raises StoreError; also
        when the step is not after the last one.
        """
        now = time.time()
        with self._transaction() as connection:
            last = connection.execute("SELECT step FROM run").fetchone()[0]
            if record.step <= last:
                raise StoreError(f"Step {record.step} cannot be stored after step {last}; go back first.", "state")
            for table in schema.HISTORY_TABLES:
                connection.execute(f"DELETE FROM {table} WHERE step > ? AND step <= ?", (last, record.step))
            connection.execute("INSERT INTO steps VALUES (?, ?, ?)", (record.step, now, len(record.rollouts)))
            self._insert_metrics(connection, record)
            rows.insert_rollouts(connection, record.step, record.rollouts)
            rows.insert_watched(connection, record.step, record.watched)
            rows.insert_probe_scores(connection, record.step, record.probes)
            rows.insert_changes(connection, now, record.changes)
            if record.episodes is not None:
                rows.insert_episodes(connection, record.step, record.episodes)
            connection.execute("DELETE FROM scratch")
            for event in record.events:
                rows.insert_event(connection, now, record.step, event)
            connection.execute("UPDATE run SET step = ?", (record.step,))
            connection.execute("UPDATE heartbeat SET at = ?", (now,))

    def _insert_metrics(self, connection: sqlite3.Connection, record: StepRecord) -> None:
        connection.executemany(
            "INSERT INTO metrics VALUES (?, ?, ?, ?)",
            [
                (record.step, self._metric_id(connection, encode_text(name)), *encode_number(value))
                for name, value in record.metrics.items()
            ],
        )

    def _metric_id(self, connection: sqlite3.Connection, name: str | bytes) -> int:
        if name not in self._metric_ids:
            connection.execute("INSERT OR IGNORE INTO metric_names (name) VALUES (?)", (name,))
            self._metric_ids[name] = connection.execute("SELECT id FROM metric_names WHERE name = ?", (name,)).fetchone()[0]
        return self._metric_ids[name]

    def watched(self, step: int, records: Sequence[WatchRecord]) -> None:
        """Store answers to the watched prompts outside a step; ``step`` 0 is the starting policy. Replaces earlier ones of that step."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM watched WHERE step = ?", (step,))
            rows.insert_watched(connection, step, records)

    def probes(self, probes: Sequence[Probe], scores: Sequence[ProbeScore]) -> None:
        """Store the run's probes with what the starting policy (step 0) gives to them, instead of earlier ones. Raises StoreError."""
        with self._transaction() as connection:
            rows.insert_probes(connection, probes)
            rows.insert_probe_scores(connection, 0, scores)

    def scratch(self, scratch: Scratch) -> None:
        """Store what a step holds while it waits, instead of what it held before; the step's commit drops it. Raises StoreError."""
        with self._transaction() as connection:
            rows.insert_scratch(connection, scratch)

    def event(self, record: EventRecord, step: int | None = None) -> None:
        """Store one line for people; ``step`` None means the run's last step. An error may use up the reserve. Raises StoreError."""
        if record.level == "error":
            self._with_reserve(lambda: self._store_event(record, step))
        else:
            self._store_event(record, step)

    def _store_event(self, record: EventRecord, step: int | None) -> None:
        with self._transaction() as connection:
            at_step = connection.execute("SELECT step FROM run").fetchone()[0] if step is None else step
            rows.insert_event(connection, time.time(), at_step, record)

    def go_back(self, step: int) -> None:
        """Go on from ``step``, at most the last one, because a resume trains the later steps again; ``epoch`` grows by one.

        Nothing is deleted here: the later steps stay on record, out of the readers' sight, until :meth:`commit_step` replaces them one
        by one. Events stay for good: they are the run's diary. Raises StoreError, and ValueError for a negative step.
        """
        if step < 0:
            raise ValueError(f"cannot go back to step {step}; the first is 0")
        with self._transaction() as connection:
            last = connection.execute("SELECT step FROM run").fetchone()[0]
            if step > last:
                raise StoreError(f"The run cannot go back to step {step}: it is at step {last}.", "state")
            connection.execute("UPDATE run SET step = ?, epoch = epoch + 1", (step,))

    def forget_later_changes(self, settings: Sequence[str] | None = None) -> None:
        """Forget that these settings (None: any) changed in steps after the run's own: these steps will be trained without.

        Raises StoreError.
        """
        with self._transaction() as connection:
            later = "DELETE FROM changes WHERE step > (SELECT step FROM run)"
            if settings is None:
                connection.execute(later)
            else:
                connection.executemany(f"{later} AND setting = ?", [(encode_text(setting),) for setting in settings])

    def plan_changes(self, changes: Sequence[SettingChange]) -> None:
        """Record changes of settings that are yet to come, so that a stop or a kill before their step does not lose them.

        They are out of the readers' sight until :meth:`commit_step` replaces them with what the step was trained with. What was recorded
        of the same settings from their step on is forgotten. Raises StoreError.
        """
        with self._transaction() as connection:
            forget = "DELETE FROM changes WHERE setting = ? AND step >= ? AND step > (SELECT step FROM run)"
            connection.executemany(forget, [(encode_text(change.setting), change.step) for change in changes])
            rows.insert_changes(connection, time.time(), changes)

    # --- requests ------------------------------------------------------------------------------------------------------

    def pending_commands(self) -> list[Command]:
        """Requests from the app that were not acknowledged yet, oldest first. Raises StoreError."""
        with self._lock:
            self.check_folder()
            try:
                rows_of_commands = rows.COMMANDS.select(self._connection, "WHERE acknowledged_at IS NULL ORDER BY id", keys=("id",))
                return [Command(number, **values) for (number,), values in rows_of_commands]
            except sqlite3.Error as error:
                raise store_error(error, self.path) from error

    def acknowledge(self, command_id: int, outcome: str) -> None:
        """Say what became of a request. Raises StoreError, also when there is no such open request."""
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE commands SET acknowledged_at = ?, outcome = ? WHERE id = ? AND acknowledged_at IS NULL",
                (time.time(), encode_text(outcome), command_id),
            ).rowcount
            if not changed:
                raise StoreError(f"There is no open request {command_id} in {self.path}.", "absent")

    def close(self) -> None:
        """Close the database. A run that has ended becomes a plain single file again, if nobody is reading just now."""
        with self._lock:
            try:
                # Giving up the write-ahead log removes it by its path, where another run's may lie by now; closing alone does not.
                if self._database_file.is_ours():
                    self._connection.execute("PRAGMA busy_timeout = 0")
                    schema.set_journal(self._connection, "delete", 0.2, only_of=self._database_file)
            except sqlite3.Error as error:
                raise store_error(error, self.path) from error
            finally:
                self._connection.close()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def record_end(run_dir: Path, record: EventRecord) -> bool:
    """Record that a run was stopped when its engine is gone and could not record it. Returns whether there was anything to record.

    Call it while holding the :class:`~rlhf_studio.runs.liveness.EngineLock`. A run that had ended by itself keeps its recorded state and
    cause.

    Raises:
        StoreError: the run cannot be read or written.
    """
    path = Path(run_dir).resolve() / paths.DATABASE
    connection = schema.connect(path)
    try:
        schema.migrate(connection, path)
        with schema.transaction(connection, path):
            state, step = connection.execute("SELECT state, step FROM run").fetchone()
            if state not in (*ALIVE, "queued"):
                return False
            now = time.time()
            rows.insert_event(connection, now, step, record)
            connection.execute("DELETE FROM scratch")
            _expire_commands(connection, S_("the end of the run"), early_too=True)
            connection.execute(
                "UPDATE run SET state = 'stopped', phase = '', fraction = NULL, cause = '', ended_at = ?, seq = seq + 1", (now,)
            )
            return True
    finally:
        connection.close()


def _expire_commands(connection: sqlite3.Connection, cause: str, early_too: bool) -> None:
    connection.execute(
        "UPDATE commands SET acknowledged_at = ?, outcome = ? WHERE acknowledged_at IS NULL AND early <= ?",
        (time.time(), f"overtaken by {cause}", int(early_too)),
    )


# --- heartbeat -----------------------------------------------------------------------------------------------------------------


def _beat(connection: sqlite3.Connection, path: Path) -> None:
    """Store the time of the engine's last heartbeat. Raises StoreError."""
    with schema.transaction(connection, path):
        connection.execute("UPDATE heartbeat SET at = ?", (time.time(),))


class Heartbeat:
    """A thread of the engine that stores the time once per interval as a sign that the process runs, over a connection of its own.

    It does not raise: ``problem`` holds the last failure, or None. A disk that fails here fails in the writer too, and there
    the engine gets the error. When the run folder is not where it was when this was made, it ends.
    """

    def __init__(self, run_dir: Path, interval: float = 1.0):
        self.path = Path(run_dir).resolve() / paths.DATABASE
        self.interval = interval
        self.problem: Exception | None = None
        self._database_file = schema.FileIdentity(self.path)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; the first beat comes at once."""
        self._thread.start()

    def stop(self) -> None:
        """End and wait for the thread. Do this before the writer is closed."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            try:
                if connection is None:
                    connection = schema.connect(self.path)
                    connection.execute("PRAGMA synchronous = NORMAL")  # a lost beat is no loss: no need to wait for the disk
                if not self._database_file.is_ours():
                    self.problem = RunGone(self.path.parent)
                    break
                _beat(connection, self.path)
                self.problem = None
            except (StoreError, sqlite3.Error) as error:
                self.problem = error
            if self._stop.wait(self.interval):
                break
        if connection is not None:
            connection.close()

    def __enter__(self) -> Heartbeat:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


@contextmanager
def write_run(run_dir: Path, *, wait_for_disk: bool = True) -> Iterator[RunWriter]:
    """The run's writer for as long as the block goes on: with the engine's lock, and with a heartbeat.

    Arguments and errors are those of :class:`RunWriter`; AlreadyRunning also where this process holds the lock already.
    """
    with liveness.EngineLock(run_dir), RunWriter(run_dir, wait_for_disk=wait_for_disk) as writer, Heartbeat(run_dir):
        yield writer
