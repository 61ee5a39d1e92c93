"""The dispatcher: a thread of the app that starts the next queued run when none is alive, and reaps ended engines."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Protocol

from rlhf_studio.runs import claims
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.launch import start_engine
from rlhf_studio.runs.liveness import StartTicket
from rlhf_studio.runs.start import StartMode
from rlhf_studio.runs.workspace import Workspace

logger = logging.getLogger(__name__)


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
        """Why the queue stands still, for people; empty when all is well."""
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
                # A mistake in here must not end the thread: nothing would ever start again and nobody would know why.
                logger.exception("The dispatcher failed")
                self.problem = f"The queue stands still because of an error in the program: {error}"
            self._wake.wait(self.interval)

    def tick(self) -> None:
        """One look: collect ended engines, then start the next run if none is alive. Raises StoreError."""
        with self._tick_lock:
            self._reap()
            if not claims.has_work(self.workspace):
                return
            claim = claims.claim_next(self.workspace)
            if claim is not None:
                try:
                    self._launch(claim)
                finally:
                    claim.ticket.close()

    def _reap(self) -> None:
        for run_id, process in list(self._children.items()):
            code = process.poll()
            if code is not None:
                claims.note_ended(self.workspace, run_id, process.pid, code)
                del self._children[run_id]

    def _launch(self, claim: claims.Claim) -> None:
        try:
            process = self._start_engine(claim.run_dir, claim.mode, ticket=claim.ticket)
        except (StoreError, OSError) as error:
            claims.note_not_started(self.workspace, claim.run_id, f"The engine could not be started: {error}")
            return
        self._children[claim.run_id] = process
        claims.note_started(self.workspace, claim.run_id, process.pid)
