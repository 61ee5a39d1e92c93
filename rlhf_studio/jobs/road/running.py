"""How the parts of a road are done: runs by the workspace's queue, files by commands of this program. Both can be stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.config.io import with_values
from rlhf_studio.jobs.road.state import COMMAND_LOCK, LOG
from rlhf_studio.runs import studio
from rlhf_studio.runs.checkpoints import NoCheckpoint, where_to_resume
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import NotRunning, StoreError
from rlhf_studio.runs.lab.resuming import RESUMABLE
from rlhf_studio.runs.liveness import FileLock, is_locked
from rlhf_studio.runs.queue import Dispatcher
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ALIVE
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.system import hand_over

POLL_SECONDS = 0.2

Say = Callable[[str], None]


class RoadStopped(Exception):
    """Somebody stopped the road, or the run of its part."""


class PartFailed(Exception):
    """A part failed; the message is one sentence for people."""


class StopSignals:
    """Notes a signal to end this process, so that the part under way can be ended first."""

    def __init__(self) -> None:
        self.received = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        self.received = True

    def wait(self) -> None:
        """Wait for an instant. Raises :class:`RoadStopped`."""
        if self.received:
            raise RoadStopped
        time.sleep(POLL_SECONDS)


# --- a run of the workspace ----------------------------------------------------------------------------------------------------


def run_to_its_end(dispatcher: Dispatcher, run_id: str, signals: StopSignals, say: Say, minutes: float = 0.0) -> None:
    """Work on the queue of the workspace until a run has ended. A run that was stopped or that failed is queued again.

    A run that its time limit has stopped is done. ``minutes``: the limit of one that goes on; 0 for as it was.
    Raises :class:`RoadStopped`, :class:`PartFailed`, ConfigError and StoreError.
    """
    workspace = dispatcher.workspace
    before = workspace.status(run_id)
    if before.state == "finished" or is_over_by_time(workspace, run_id):
        return
    never_queued = before.state == "queued" and run_id not in studio.read(workspace.root, run_id).entries
    if before.state in RESUMABLE or never_queued:
        _resume(workspace, run_id, say, minutes)
    if before.state in ALIVE:
        say("  an engine is at work on its run already; waiting for its end")
    elif any(run.state in ALIVE and run.origin.kind == "studio" for run in workspace.runs()):
        say("  waiting in the queue: another run is at work")
    stop = _RunStopper(workspace, run_id, signals)
    (run,) = dispatcher.run_until_ended([run_id], stop.send)
    if run.state == "finished" or is_over_by_time(workspace, run_id):
        return
    if stop.cancelled or run.state == "stopped" or (signals.received and run.state != "failed"):
        raise RoadStopped
    raise PartFailed(run.cause)


def is_over_by_time(workspace: Workspace, run_id: str) -> bool:
    """Whether a run has stopped because its time limit was over, after a step at least. Raises StoreError."""
    reader = RunReader(workspace.own_dir(run_id))
    return bool(reader.checkpoints()) and reader.ended_by_time()


def _resume(workspace: Workspace, run_id: str, say: Say, minutes: float) -> None:
    """Queue a run to begin, to go on from its newest checkpoint, or to begin again where there is none. Raises StoreError, ConfigError."""
    folder = workspace.own_dir(run_id)
    has_begun = RunReader(folder).stored()[0] != "queued"
    why = "it has no checkpoint"
    try:
        step = where_to_resume(folder, read_again=False).step
    except NoCheckpoint as error:
        step, why = None, error.why
    if has_begun:
        say(f"  going on from step {step}" if step else f"  begun again from step 0: {why}")
    config = RunReader(folder).config()
    if step and minutes and config.engine.max_minutes:
        workspace.resume_with(run_id, with_values(config, {"engine.max_minutes": minutes}))
        return
    workspace.resume(run_id, from_start=has_begun and not step)


class _RunStopper:
    """Stops a run, once, when this process was asked to end."""

    def __init__(self, workspace: Workspace, run_id: str, signals: StopSignals) -> None:
        self._workspace, self._run_id, self._signals = workspace, run_id, signals
        self._sent = False
        self.cancelled = False
        """Whether the run was waiting and has left the queue."""

    def send(self) -> None:
        """Cancel a run that waits, send ``stop`` to one that works. If it was too early or too late, the next call tries again."""
        if not self._signals.received or self._sent:
            return
        try:
            if self._workspace.status(self._run_id).state == "queued":
                self._workspace.cancel(self._run_id)
                self.cancelled = True
            else:
                send_command(self._workspace.own_dir(self._run_id), "stop")
        except NotRunning:  # the run is just ending, or its engine has just started and does not answer yet
            return
        except StoreError as error:
            if error.reason != "state":  # it has just been started
                raise
            return
        self._sent = True


# --- a command of this program -----------------------------------------------------------------------------------------------------------


def run_command(folder: Path, arguments: Sequence[str], signals: StopSignals) -> str:
    """Run a command of this program. Its output goes into the log of the road in ``folder``. Returns its last line.

    A road has one command at a time. If a killed driver has left one, this waits for its end first, because both write the same files.
    Raises :class:`RoadStopped`, :class:`PartFailed` with the command's last line, StoreError and OSError.
    """
    with closing(FileLock(folder / COMMAND_LOCK, StoreError("another command works for this road", "busy"))) as lock:
        while is_locked(lock.path):
            signals.wait()
        lock.take()
        assert lock.descriptor is not None
        code, last_line = _run(folder, arguments, signals, lock.descriptor)
    if code:
        raise PartFailed(last_line or f"the command {arguments[0]} ended with {code}")
    return last_line


def _run(folder: Path, arguments: Sequence[str], signals: StopSignals, lock: int) -> tuple[int, str]:
    """(exit code, last line); the command inherits the descriptor ``lock``, so the lock is held until the command ends."""
    with (folder / LOG).open("ab") as log:
        start = log.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [sys.executable, "-m", "rlhf_studio", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=child_environment(os.environ),
            **hand_over(lock),
        )
        try:
            while process.poll() is None:
                signals.wait()
        except RoadStopped:
            process.terminate()
            process.wait()
            raise
    with (folder / LOG).open("rb") as log:
        log.seek(start)
        lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return process.returncode, lines[-1] if lines else ""
