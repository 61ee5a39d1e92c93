"""The queue: which run may start now, and the thread of the app that starts it and notes ended engines.

All decisions are made inside one exclusive transaction on ``studio.db``. All facts come from the kernel's locks and from the runs
themselves. So it does not matter which app asks, how many apps there are, or whether one of them was killed.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rlhf_studio.language import S_
from rlhf_studio.runs import liveness, status, studio
from rlhf_studio.runs.errors import AlreadyRunning, StoreError
from rlhf_studio.runs.lab.resuming import waits_for_more_steps
from rlhf_studio.runs.launch import start_engine
from rlhf_studio.runs.liveness import StartTicket
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, RunStatus, StartMode
from rlhf_studio.runs.workspace import Workspace

logger = logging.getLogger(__name__)
MAX_ATTEMPTS = 3
MISTAKE = "An error in the program, with one run; the others go on"
FREE = status.Locks(starting=False, alive=False)


@dataclass(frozen=True)
class Claim:
    """A run that this process, and no other, may start now. Whoever gets it closes the ticket once the engine has its copy."""

    run_id: str
    run_dir: Path
    mode: StartMode
    ticket: liveness.StartTicket


def has_work(workspace: Workspace) -> bool:
    """Whether a run waits or a claim is open. A cheap read that creates nothing. Raises StoreError."""
    return any(entry.state in ("waiting", "claimed") for entry in studio.read(workspace.root).entries.values())


def claim_next(workspace: Workspace, among: Collection[str] | None = None) -> Claim | None:
    """The next queued run if no engine of ours is at work in the workspace, now claimed for the caller; else None. Raises StoreError.

    ``among``: the ids of the runs that the caller may start; without it, all. An engine counts whoever started it, and from the
    moment it is being started. Runs that others train (``Origin.kind``) are not waited for: nothing says when those end, nor where they
    compute. Claims whose engine has ended are settled first.
    """
    with studio.change(workspace.root) as connection:
        if settle(workspace, connection) or any(map(_holds_the_queue, workspace.folders())):
            return None
        for entry in studio.Studio(studio.load_entries(connection), {}).waiting():
            claim = _claim(workspace, connection, entry) if among is None or entry.run_id in among else None
            if claim is not None:
                return claim
    return None


def _holds_the_queue(folder: Path) -> bool:
    """Whether an engine of ours is at work in this folder; a run that cannot be read counts as one."""
    if status.look_at_locks(folder) == FREE:
        return False
    try:
        return RunReader(folder).origin().kind == "studio"
    except (StoreError, ValueError):
        return True


def _claim(workspace: Workspace, connection: sqlite3.Connection, entry: studio.QueueEntry) -> Claim | None:
    try:
        folder = workspace.run_dir(entry.run_id)
        reader = RunReader(folder)
        state, seq = reader.stored()
        if (state == "finished" and seq != entry.seq) or (state != "queued" and entry.mode == "train"):
            studio.set_entry(connection, entry.run_id, "done", seq=seq)  # somebody ran it from a shell meanwhile
            return None
        ticket = liveness.StartTicket(folder)
        ticket.take()
        if state == "finished" and not _has_more_steps(reader, seq, ticket):
            studio.set_entry(connection, entry.run_id, "done", seq=seq)  # an app was killed while it changed the settings
            return None
    except AlreadyRunning:  # it is being deleted or started by hand: it stays in the queue
        return None
    except StoreError as error:  # one damaged run must not hold up the others
        _give_up(connection, entry, str(error))
        return None
    except Exception as error:  # nor one that the program has an error with
        logger.exception(MISTAKE)
        _give_up(connection, entry, _not_started(error))
        return None
    studio.set_entry(connection, entry.run_id, "claimed", seq=seq)
    return Claim(entry.run_id, folder, entry.mode, ticket)


def _give_up(connection: sqlite3.Connection, entry: studio.QueueEntry, cause: str) -> None:
    studio.set_entry(connection, entry.run_id, "lost", seq=entry.seq, cause=cause)


def _not_started(error: Exception) -> str:
    return S_(f"The engine could not be started: {error}")


def _has_more_steps(reader: RunReader, seq: int, ticket: liveness.StartTicket) -> bool:
    """Whether the settings ask for more steps than are done. Called with the ticket taken, since settings may change until then.

    Closes the ticket where there are no more steps.
    """
    more = False
    try:
        more = waits_for_more_steps(reader, seq)
    finally:
        if not more:
            ticket.close()
    return more


def note_started(workspace: Workspace, run_id: str, pid: int) -> None:
    """Note which process works on a claimed run. Raises StoreError."""
    with studio.change(workspace.root) as connection:
        studio.set_pid(connection, run_id, pid)


def note_not_started(workspace: Workspace, run_id: str, cause: str) -> None:
    """Note that no process could be started for a claimed run, and why. Raises StoreError."""
    with studio.change(workspace.root) as connection:
        entry = studio.load_entries(connection)[run_id]
        studio.set_entry(connection, run_id, "lost", seq=entry.seq, cause=cause)


def note_ended(workspace: Workspace, run_id: str, pid: int, exit_code: int) -> None:
    """Note how a process that the caller had started ended. Raises StoreError."""
    with studio.change(workspace.root) as connection:
        studio.set_exit_code(connection, run_id, pid, exit_code)
        settle(workspace, connection)


def settle(workspace: Workspace, connection: sqlite3.Connection) -> bool:
    """Close every claim whose engine has ended. Returns whether one is still open."""
    busy = False
    for entry in studio.load_entries(connection).values():
        if entry.state == "claimed":
            busy = _settle_claim(workspace, connection, entry) or busy
    return busy


def _settle_claim(workspace: Workspace, connection: sqlite3.Connection, entry: studio.QueueEntry) -> bool:
    try:
        folder = workspace.run_dir(entry.run_id)
        what, seq = outcome(folder, entry)
        if what == "busy":
            return True
        if what == "never-started" and entry.attempts + 1 < MAX_ATTEMPTS:
            studio.give_back(connection, entry.run_id)
        elif what == "never-started":
            cause = S_(f"The program that starts runs ended {MAX_ATTEMPTS} times while it was starting the engine. Resume tries again.")
            studio.set_entry(connection, entry.run_id, "lost", seq=seq, cause=cause)
        elif what == "ended-early":
            studio.set_entry(connection, entry.run_id, "lost", seq=seq, cause=status.early_end(folder, entry.exit_code))
        else:
            studio.set_entry(connection, entry.run_id, "done", seq=seq)
    except StoreError as error:  # somebody removed or damaged it meanwhile
        _give_up(connection, entry, str(error))
    except Exception as error:
        logger.exception(MISTAKE)
        _give_up(connection, entry, _not_started(error))
    return False


def outcome(run_dir: Path, entry: studio.QueueEntry) -> tuple[Literal["busy", "ended", "ended-early", "never-started"], int]:
    """What became of a claim, and the run's ``seq``, which grows with every change, as it is now.

    busy: the engine works or is being started. ended: it had begun to work. ended-early: it ended before it wrote anything.
    never-started: the app ended between claiming the run and starting its engine. Raises StoreError when the run cannot be read.
    """
    locks = status.look_at_locks(run_dir)
    seq = RunReader(run_dir).stored()[1]  # read after the locks: it includes what an engine wrote before it released its lock
    if locks.alive:
        return "busy", seq
    if seq > entry.seq:
        return "ended", seq
    if locks.starting:
        return "busy", seq
    return ("never-started" if entry.pid is None else "ended-early"), seq


# --- the dispatcher --------------------------------------------------------------------------------------------------------------


class Process(Protocol):
    """What the dispatcher needs of a started engine; ``subprocess.Popen`` has it."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, or None while it runs; collects the ended process."""


class StartEngine(Protocol):
    """How an engine is started: :func:`rlhf_studio.runs.launch.start_engine`, or something else in tests."""

    def __call__(self, run_dir: Path, mode: StartMode, *, ticket: StartTicket) -> Process:
        """Start it; the ticket must be passed on to the process or be held until the engine has its lock."""


class Dispatcher:
    """Starts queued runs of one workspace, one at a time. Several dispatchers, also of several apps, may share a workspace.

    Engines outlive the dispatcher. A new one finds the runs that are alive by their locks.
    """

    def __init__(self, workspace: Workspace, start: StartEngine = start_engine, interval: float = 0.5):
        """``interval`` is the longest time in seconds between two looks at the queue."""
        self.workspace = workspace
        self.interval = interval
        self.problem: str = ""
        """Why the queue stands still, for people; empty while it works."""
        self._start_engine = start
        self._children: dict[str, Process] = {}
        self._tick_lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> list[str]:
        """Begin dispatching in a daemon thread; returns the ids of the runs found alive. Raises StoreError."""
        alive = self.workspace.adopt()
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
        self._thread.start()
        return alive

    def stop(self) -> None:
        """End the thread and wait for it. Engines go on."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wake(self) -> None:
        """Look at the queue now, for instance because a run was just submitted."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self.tick()
                self.problem = ""
            except StoreError as error:
                if str(error) != self.problem:  # once, not twice a second
                    logger.warning("The queue stands still: %s", error)
                self.problem = str(error)
            except Exception as error:
                # An error in the program, and not with one run, must not end the thread: nobody would know why no run starts any more.
                logger.exception("The dispatcher failed")
                self.problem = S_(f"The queue stands still because of an error in the program: {error}")
            self._wake.wait(self.interval)

    def tick(self, among: Collection[str] | None = None) -> None:
        """One look: collect ended engines, then start the next run if none is alive. ``among`` as for :func:`claim_next`; StoreError."""
        with self._tick_lock:
            self._reap()
            if not has_work(self.workspace):
                return
            claim = claim_next(self.workspace, among)
            if claim is not None:
                try:
                    self._launch(claim)
                finally:
                    claim.ticket.close()

    def run_until_ended(self, run_ids: Iterable[str], at_each_look: Callable[[], None] = lambda: None) -> Iterator[RunStatus]:
        """Start these queued runs, and no others, in this thread, without :meth:`start`; gives the status of each when it has ended.

        Other queued runs wait for an app, which may have permissions for them. Another app may start the given runs, too.
        An engine of this dispatcher counts as ended when its exit code is known. ``at_each_look`` is called between two looks.
        Raises StoreError, also for a run that is deleted meanwhile.
        """
        waiting = list(run_ids)
        while waiting:
            self.tick(among=waiting)
            ended = [run for run in map(self.workspace.status, waiting) if run.state in ENDED and run.run_id not in self._children]
            for run in ended:
                waiting.remove(run.run_id)
                yield run
            if waiting:
                at_each_look()
                time.sleep(self.interval)

    def _reap(self) -> None:
        for run_id, process in list(self._children.items()):
            code = process.poll()
            if code is not None:
                note_ended(self.workspace, run_id, process.pid, code)
                del self._children[run_id]

    def _launch(self, claim: Claim) -> None:
        try:
            process = self._start_engine(claim.run_dir, claim.mode, ticket=claim.ticket)
        except (StoreError, OSError) as error:
            note_not_started(self.workspace, claim.run_id, _not_started(error))
            return
        except Exception as error:  # it would come again at each look, and the runs behind this one would wait
            logger.exception(MISTAKE)
            note_not_started(self.workspace, claim.run_id, _not_started(error))
            return
        self._children[claim.run_id] = process
        note_started(self.workspace, claim.run_id, process.pid)
