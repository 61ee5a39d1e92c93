"""What state a run is really in: the run's own row, the kernel's locks and the app's queue, put together.

The row alone cannot be trusted: an engine that was killed could not change it. The rules, first match wins:

====================  =======================================================  ===========================================
engine.lock           row and queue                                            state
====================  =======================================================  ===========================================
held                  nothing written since the claim, or row says queued      loading
held                  anything else                                            as the row says
free                  start.lock held, nothing written since the claim         loading
free                  waiting in the queue                                     queued
free                  claimed, nothing written since, engine was started       failed (it ended before it could begin)
free                  claimed, nothing written since, no engine started yet    queued (the claim will be given back)
free                  lost, nothing written since                              failed
free                  row says loading, running or paused                      interrupted
free                  row says queued, cancelled in the queue                  stopped
free                  row says queued, the queue says it was started           failed (it ended before it wrote anything)
free                  row says queued, in a workspace, not in its queue        interrupted (never started)
free                  anything else                                            as the row says
====================  =======================================================  ===========================================
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path

from rlhf_studio import system
from rlhf_studio.config.bundled import RECORDINGS
from rlhf_studio.language import S_
from rlhf_studio.regular import open_regular
from rlhf_studio.runs import liveness, paths, rows
from rlhf_studio.runs.errors import PROGRAM_ENDED, RECORDING_ENDED, RunGone, StoreError, store_error
from rlhf_studio.runs.records import ALIVE, Marks, Origin, RunStatus, State
from rlhf_studio.runs.studio import QueueEntry, Studio
from rlhf_studio.runs.values import check_real, check_whole
from rlhf_studio.runs.visitors.starters import Starter

JUST_CREATED_SECONDS = 5.0
SILENT_AFTER = 10.0  # seconds; the engine's heart beats once a second
STOP_GRACE = 15.0  # seconds that a request to stop is given before force is offered
_CAUSE_CHARACTERS = 300
CANCELLED = S_("Cancelled before it started")
"""The phase of a run that was taken out of the queue and has never begun."""

_NAMES = {recording.run_id: recording.name for recording in RECORDINGS}

_AS_STORED = tuple({field.name for field in fields(rows.RunRow)} & {field.name for field in fields(RunStatus)})
_BESIDE = """SELECT (SELECT at FROM heartbeat), coalesce((SELECT max(step) FROM steps), 0),
    (SELECT min(sent_at) FROM commands WHERE kind IN ('stop', 'discard') AND acknowledged_at IS NULL)"""


@dataclass(frozen=True)
class Locks:
    """What the kernel says, looked at in the order that leaves no gap (see :mod:`rlhf_studio.runs.liveness`)."""

    starting: bool
    alive: bool


def look_at_locks(run_dir: Path) -> Locks:
    """Both locks of a run. Raises StoreError when they cannot be seen."""
    starting = liveness.is_starting(run_dir)
    return Locks(starting, liveness.is_alive(run_dir))


def read_row(connection: sqlite3.Connection, run_dir: Path, studio: Studio) -> RunStatus:
    """The run's row as it stands, with the name a person gave it. Raises one of ``values.DAMAGE`` when it is damaged."""
    row = rows.read_run(connection)
    beat_at, last_step, stop_asked_at = connection.execute(_BESIDE).fetchone()
    check_real(beat_at, stop_asked_at)
    check_whole(last_step, row.step, row.total_steps, row.epoch, row.seq)
    check_real(row.created_at)
    recording = paths.is_recording(run_dir)
    given = _NAMES.get(run_dir.name) if recording else studio.names.get(run_dir.name)
    as_stored = {name: getattr(row, name) for name in _AS_STORED}
    return RunStatus(
        **{**as_stored, "name": given or row.name},
        run_id=run_dir.name,
        heartbeat_age=_age(beat_at),
        stop_asked_age=_age(stop_asked_at) if row.state in ALIVE else None,
        last_recorded_step=max(row.step, last_step),
        marks=studio.marks.get(run_dir.name, Marks()),
        starter=studio.starters.get(run_dir.name, Starter()),
        recording=recording,
    )


def _age(at: float | None) -> float | None:
    return None if at is None else max(0.0, time.time() - at)


def silence(run: RunStatus) -> int | None:
    """Seconds since an engine that should be at work gave its last sign of life, when that is long enough to mention; else None."""
    age = run.heartbeat_age
    return int(age) if run.state in ALIVE and age is not None and age > SILENT_AFTER else None


def may_force_stop(run: RunStatus) -> bool:
    """Whether a person should be offered to end the engine by force: it was asked to stop, had time for it, and has not.

    Never for a run that somebody's own program trains: see :func:`rlhf_studio.runs.launch.kill_engine`.
    """
    asked = run.stop_asked_age is not None and run.stop_asked_age > STOP_GRACE
    return run.state in ALIVE and asked and not run.origin.trained_by


def derive(row: RunStatus, locks: Locks, studio: Studio, run_dir: Path, in_workspace: bool) -> RunStatus:
    """Apply the table above to the run's row."""
    entry = studio.entries.get(row.run_id)
    untouched = entry is not None and row.seq == entry.seq  # no engine has written since the entry's state was set
    claimed = entry is not None and entry.state == "claimed"
    if locks.alive or locks.starting:
        if (claimed and untouched) or row.state == "queued" or (locks.starting and not locks.alive and row.state in ALIVE):
            return _with(row, "loading", "Starting the engine")
        if locks.alive:
            return row
    if entry is not None and entry.state == "waiting" and (untouched or (entry.mode != "train" and row.state != "finished")):
        return _waiting(row, studio)
    if entry is not None and claimed and untouched:
        return _waiting(row, studio) if entry.pid is None else _with(row, "failed", cause=early_end(run_dir, entry.exit_code))
    if entry is not None and entry.state == "lost" and untouched:
        return _with(row, "failed", cause=entry.cause)
    if row.state in ALIVE:
        return _with(row, "interrupted", cause=_interruption(entry if untouched else None, run_dir, row.origin))
    if row.state == "queued" and entry is not None and entry.state == "cancelled":
        return _with(row, "stopped", CANCELLED)
    if row.state == "queued" and entry is not None:
        return _with(row, "failed", cause=early_end(run_dir, entry.exit_code))
    if row.state == "queued" and in_workspace and time.time() - row.created_at > JUST_CREATED_SECONDS:
        line = _last_words(run_dir)
        never = S_("The run was prepared but never got going. Resume starts it.")
        return _with(row, "interrupted", cause=line if line.startswith(RECORDING_ENDED) else never)
    return row


def _with(row: RunStatus, state: State, phase: str = "", cause: str = "") -> RunStatus:
    return replace(row, state=state, phase=phase, fraction=None, cause=cause)


def _waiting(row: RunStatus, studio: Studio) -> RunStatus:
    return replace(_with(row, "queued", "Waiting in the queue"), queue_position=studio.queue_position(row.run_id))


def early_end(run_dir: Path, exit_code: int | None) -> str:
    """The sentence for an engine that ended before it wrote anything, with the last line of its log."""
    how = "" if exit_code is None else f" ({_exit(exit_code)})"
    line = _last_words(run_dir)
    log = S_(f" The last line of its log: {line.rstrip('.')}.") if line else S_(" Its log is empty.")
    return S_(f"The engine ended before it could begin{how}.{log} Put that right, then resume the run.")


def _interruption(entry: QueueEntry | None, run_dir: Path, origin: Origin) -> str:
    who = "program" if origin.trained_by else "engine"
    code = entry.exit_code if entry else None
    line = _last_words(run_dir)
    if RunGone.PHRASE in line:
        how = S_(f"The folder of the run was moved or renamed while the {who} worked in it, so the {who} ended.")
    elif line.startswith((RECORDING_ENDED, PROGRAM_ENDED)):
        how = line
    elif code == -system.KILL:
        how = S_(f"The {who} was killed (SIGKILL), often by the system because memory ran out.")
    elif code is not None:
        how = S_(f"The {who} ended without saying why ({_exit(code)}). The last line of its log: {line or 'none'}")
    else:
        how = S_(f"The {who} ended without saying why: it was killed, memory ran out, or the machine went down.")
    return how


def _last_words(run_dir: Path) -> str:
    try:
        return last_log_line(run_dir)
    except StoreError:
        return ""


def _exit(code: int) -> str:
    if code >= 0:
        return S_(f"exit code {code}")
    return next((item.name for item in signal.Signals if item == -code), f"signal {-code}")


def last_log_line(run_dir: Path) -> str:
    """The last line of the engine's log that is not blank, at most 300 characters; empty when there is none."""
    lines = [line.strip() for line in read_log(run_dir, 4000).replace("\r", "\n").split("\n") if line.strip()]
    return lines[-1][-_CAUSE_CHARACTERS:] if lines else ""


def read_log(run_dir: Path, size: int) -> str:
    """At most the last ``size`` bytes of the engine's log as text; empty when there is no log. Links are not followed.

    Raises:
        StoreError: the log cannot be read.
    """
    path = Path(run_dir) / paths.LOG
    try:
        opened = open_regular(path, follow=False)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise store_error(error, path) from error
    with opened as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - size))
        data = file.read(size)
    if length > size:  # do not begin inside a UTF-8 character
        while data and data[0] & 0xC0 == 0x80 and len(data) > size - 4:
            data = data[1:]
    return data.decode("utf-8", "replace")


def broken(run_dir: Path, error: StoreError | ValueError, created_at: float) -> RunStatus:
    """The entry of a folder that cannot be read as a run, for lists: state failed, and the cause says what is wrong."""
    name = run_dir.name
    return RunStatus(run_id=name, name=name, state="failed", created_at=created_at, cause=str(error), unreadable=True)
