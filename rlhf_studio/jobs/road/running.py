"""The processes of a road's parts: an engine that is seen to its end, and commands of ours. A request to stop ends either."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.jobs.road.state import COMMAND_LOCK, LOG, locked
from rlhf_studio.runs.checkpoints import NoCheckpoint, where_to_resume
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import AlreadyRunning, NotRunning
from rlhf_studio.runs.launch import start_engine
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StartMode
from rlhf_studio.runs.status import early_end, look_at_locks

POLL_SECONDS = 0.2

Say = Callable[[str], None]


class StopAsked(Exception):
    """Somebody asked the road, or the run of its part, to stop."""


class PartFailed(Exception):
    """A part failed; the message is one sentence for people."""


class Signals:
    """Remembers that this process was asked to end, and lets it end the part under way first."""

    def __init__(self) -> None:
        self.received = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        self.received = True

    def wait(self) -> None:
        """Wait for an instant. Raises :class:`StopAsked`."""
        if self.received:
            raise StopAsked
        time.sleep(POLL_SECONDS)


# --- a run of the workspace ----------------------------------------------------------------------------------------------------


def run_to_its_end(run_dir: Path, signals: Signals, say: Say) -> None:
    """See a run to its end: with the engine that is at work on it, whoever started that, or with one that is started here.

    Raises :class:`StopAsked`, :class:`PartFailed` and StoreError.
    """
    if RunReader(run_dir).status().state == "finished":
        return
    process = _engine(run_dir, say)
    asked = False
    while process.poll() is None if process else _at_work(run_dir):
        if signals.received and not asked:
            asked = True
            with contextlib.suppress(NotRunning):  # it ends by itself just now
                send_command(run_dir, "stop")
        time.sleep(POLL_SECONDS)
    reader = RunReader(run_dir)
    status = reader.status()
    if status.state == "finished":
        return
    if status.state == "stopped" or (signals.received and status.state != "failed"):
        raise StopAsked
    if reader.stored()[0] == "queued":
        raise PartFailed(early_end(run_dir, process.returncode if process else None))
    raise PartFailed(status.cause)


def _engine(run_dir: Path, say: Say) -> subprocess.Popen[bytes] | None:
    """The engine that is started here for the run; None when one is at work on it already, such as that of a driver that was killed."""
    if not _at_work(run_dir):
        with contextlib.suppress(AlreadyRunning):  # somebody was quicker
            return start_engine(run_dir, _mode(run_dir, say))
    say("  an engine is at work on its run already; waiting for its end")
    return None


def _at_work(run_dir: Path) -> bool:
    locks = look_at_locks(run_dir)
    return locks.starting or locks.alive


def _mode(run_dir: Path, say: Say) -> StartMode:
    """Begin, go on from the newest checkpoint, or begin again where there is none. Raises StoreError."""
    if RunReader(run_dir).stored()[0] == "queued":
        return "train"
    why = "it has no checkpoint"
    try:
        point = where_to_resume(run_dir, read_again=False)
        if point.step:
            say(f"  going on from step {point.step}")
            return "resume"
    except NoCheckpoint as error:
        why = error.why
    say(f"  begun again from step 0: {why}")
    return "from-start"


# --- a command of ours -----------------------------------------------------------------------------------------------------------


def run_command(folder: Path, arguments: Sequence[str], signals: Signals) -> str:
    """Run one of our commands, its output in the log of the road in ``folder``. Returns its last line.

    One command works for a road at a time: that of a driver that was killed is waited for first, since both write the same files.
    Raises :class:`StopAsked`, :class:`PartFailed` with the command's last line, and OSError.
    """
    held = os.open(folder / COMMAND_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while not locked(held, fcntl.LOCK_EX):
            signals.wait()
        code, said = _run(folder, arguments, signals, held)
    finally:
        os.close(held)
    if code:
        raise PartFailed(said or f"the command {arguments[0]} ended with {code}")
    return said


def _run(folder: Path, arguments: Sequence[str], signals: Signals, held: int) -> tuple[int, str]:
    """(exit code, last line); the command inherits the lock ``held``, and so keeps it as long as it lives."""
    with (folder / LOG).open("ab") as log:
        start = log.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            [sys.executable, "-m", "rlhf_studio", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=child_environment(os.environ),
            start_new_session=True,
            pass_fds=(held,),
        )
        try:
            while process.poll() is None:
                signals.wait()
        except StopAsked:
            process.terminate()
            process.wait()
            raise
    with (folder / LOG).open("rb") as log:
        log.seek(start)
        lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return process.returncode, lines[-1] if lines else ""
