"""Starting and ending the engine process.

The app starts an engine by the same command line that a person can copy; nothing else connects the two but the run folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from rlhf_studio import system
from rlhf_studio.child_process.environment import FOLDER_VARIABLE, START_FD_VARIABLE, engine_environment
from rlhf_studio.config import NOTHING_ALLOWED, Permissions
from rlhf_studio.language import S_
from rlhf_studio.runs import liveness, paths
from rlhf_studio.runs.errors import NotRunning, StoreError, store_error
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StartMode
from rlhf_studio.runs.writer import record_end


def engine_arguments(run_dir: Path, mode: StartMode) -> list[str]:
    """What follows the Python interpreter on the command line: what the app runs, and what a person may run instead."""
    folder = str(Path(run_dir).resolve())  # an absolute path can never be taken for an option
    if mode == "train":
        return ["-m", "rlhf_studio", "train", folder]
    return ["-m", "rlhf_studio", "resume", folder, *(["--from-start"] if mode == "from-start" else [])]


def engine_command(run_dir: Path, mode: StartMode = "train") -> list[str]:
    """The command that works on a prepared run folder: what the app runs, and what a person may run instead."""
    return [sys.executable, *engine_arguments(run_dir, mode)]


def start_engine(
    run_dir: Path,
    mode: StartMode = "train",
    *,
    ticket: liveness.StartTicket | None = None,
    keep_hub_token: bool = False,
    permissions: Permissions = NOTHING_ALLOWED,
) -> subprocess.Popen[bytes]:
    """Start the engine in a session of its own, its output appended to ``engine.log``.

    It runs in the folder that the run was created from (so that relative paths in its configuration lead to the same files),
    or, where that is gone, in the current one. Without a ``ticket`` (taken, and closed later, by the caller) one is taken here.
    The caller must ``poll()`` what it gets, or the ended engine stays a zombie. ``permissions`` are needed at every start: a
    run that is resumed has only those of the program that resumes it.

    Raises:
        AlreadyRunning: somebody else is starting this run.
        StoreError: not a run, or the log or the process could not be made.
    """
    folder = Path(run_dir).resolve()
    own_ticket = ticket or liveness.StartTicket(folder)
    try:
        if ticket is None:
            own_ticket.take()
        assert own_ticket.descriptor is not None  # whoever hands over a ticket has taken it
        working_folder = RunReader(folder).working_folder()
        environment = engine_environment(
            os.environ, folder, keep_hub_token=keep_hub_token, permissions=permissions, trackers=_trackers(folder)
        )
        environment[START_FD_VARIABLE] = str(own_ticket.descriptor)
        log = os.open(folder / paths.LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | system.OURS, 0o644)
        try:
            return subprocess.Popen(
                engine_command(folder, mode),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=working_folder if working_folder.is_dir() else None,
                env=environment,
                **system.hand_over(own_ticket.descriptor),
            )
        finally:
            os.close(log)
    except OSError as error:
        raise store_error(error, folder) from error
    finally:
        if ticket is None:
            own_ticket.close()


def _trackers(folder: Path) -> list[str]:
    """The trackers that the run reports to; none when its configuration cannot be read, which the engine will say."""
    try:
        return RunReader(folder).config().engine.trackers
    except (StoreError, ValueError):
        return []


def kill_engine(run_dir: Path, grace: float = 10.0) -> bool:
    """End the engine: SIGTERM first (it writes a checkpoint and ends), and after ``grace`` seconds SIGKILL for it and all its helpers.

    Returns whether there was anything to end. The engine is found by the lock it holds, or the start ticket that names it,
    its helpers by its session and by the run folder in their environment, so that no other process can be hit.

    Raises:
        StoreError: the locks cannot be seen, it belongs to another user, or it is still there two seconds after SIGKILL; and of a run
            that somebody's own program trains.
    """
    folder = Path(run_dir).resolve()
    _refuse_other_programs(folder)
    pids = engine_processes(folder)
    holder = liveness.holder_pid(folder)
    _signal(folder, [holder] if holder else pids, signal.SIGTERM)
    if _wait_until_gone(folder, grace):
        return bool(pids)
    _signal(folder, engine_processes(folder), system.KILL)
    if not _wait_until_gone(folder, 2.0):
        raise StoreError(f"The engine in {folder} could not be ended; the system may be waiting for its disk or GPU.", "alive")
    return True


def _refuse_other_programs(folder: Path) -> None:
    """Raises StoreError for a run that somebody's own program trains: that process is not ours to end."""
    try:
        origin = RunReader(folder).origin()
    except (StoreError, ValueError):
        return  # a run of ours that cannot be read any more can still be ended
    if name := origin.trained_by:
        raise StoreError(
            f"This run is trained in a process that is not ours to end ({name}). Ask it to stop, or end it where you started it: "
            "Ctrl+C in its terminal, or interrupt the notebook.",
            "state",
        )


def force_stop(run_dir: Path, by: str, grace: float = 2.0) -> str:
    """End the engine by force, with all its helpers and followers, and put that on record. Returns a sentence for the person.

    ``by`` says who asked, e.g. ``an operator``. The engine gets ``grace`` seconds to write a checkpoint and end by itself.

    Raises:
        NotRunning: there is nothing to end.
        StoreError: as :func:`kill_engine`, or the run cannot be written.
    """
    folder = Path(run_dir).resolve()
    RunReader(folder).stored()  # says so when this is no run
    if not kill_engine(folder, grace):
        if liveness.is_starting(folder):
            raise StoreError(f"The engine of {folder} is just being started; try again in some seconds.", "busy")
        raise NotRunning(f"The run in {folder} is not running, so there is nothing to end.")
    with liveness.EngineLock(folder):
        saved = RunReader(folder).checkpoints()
        begin = S_("the beginning, because there is no checkpoint")
        if saved:
            begin = S_(f"the newest whole checkpoint (step {saved[-1].step}, unless it is damaged)")
        text = S_(f"Ended by force by {by}. A resume goes on from {begin}.")
        if record_end(folder, EventRecord("warning", "stop", text)):
            return text
    return S_(f"The engine has ended; the run is {RunReader(folder).status().state}.")


def engine_processes(run_dir: Path) -> list[int]:
    """The pids of all living processes that belong to the run: the engine, its helpers, and orphans of an engine that is gone."""
    import psutil  # here, because only this needs it

    folder = str(Path(run_dir).resolve())
    # An engine from a shell says who it is in the start ticket; looked at first, because it goes on to the engine's lock.
    named = liveness.starter_pid(run_dir), liveness.holder_pid(run_dir)
    pids = {pid for pid in named if pid}
    for process in psutil.process_iter():
        try:
            if process.environ().get(FOLDER_VARIABLE) == folder and process.status() != psutil.STATUS_ZOMBIE:
                pids.add(process.pid)
        except psutil.Error:  # ended meanwhile, or another user's
            continue
    return sorted(pids - {os.getpid()})


def _signal(folder: Path, pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            # An engine that the app started leads a session of its own; one from a shell shares its session with the shell.
            if number == system.KILL and system.leads_session(pid):
                system.end_group(pid)
            else:
                os.kill(pid, number)
        except ProcessLookupError:  # ended meanwhile
            continue
        except OSError as error:
            raise StoreError(f"The engine in {folder} (process {pid}) could not be ended: {error}.", "alive") from error


def _wait_until_gone(folder: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while engine_processes(folder):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True
