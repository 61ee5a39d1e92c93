"""The lease loop: what the app's queue starts in place of an engine process."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from leases import forks, waiting
from leases.askers import Askers
from leases.lease import Lease, LeaseEnd, Pace
from leases.refusals import refusal
from rlhf_studio.config import NOTHING_ALLOWED, Permissions
from rlhf_studio.exit_codes import FAILED, OF_STATES
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import StartTicket
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StartMode

logger = logging.getLogger(__name__)
TakeLease = Callable[[Lease], LeaseEnd]
"""The decorated function: :func:`leases.worker.play`, in a forked process that has a GPU."""


class Leases:
    """Starts runs in leases: a :class:`~rlhf_studio.runs.queue.StartEngine`. Create one in each program, before anything is read."""

    def __init__(self, take: TakeLease):
        self.askers = Askers()
        self._take = take
        forks.install()

    def __call__(
        self,
        run_dir: Path,
        mode: StartMode,
        *,
        ticket: StartTicket,
        permissions: Permissions = NOTHING_ALLOWED,
        keep_hub_token: bool = False,
    ) -> LeasedRun:
        """Begin to work on a run, in a thread of this process."""
        assert ticket.descriptor is not None  # whoever hands over a ticket has taken it
        first = Lease(str(Path(run_dir).resolve()), mode, 0, permissions=permissions, keep_hub_token=keep_hub_token)
        return LeasedRun(first, self._take, self.askers, os.dup(ticket.descriptor))


class LeasedRun:
    """One run at work: a thread that takes one lease after the other, and looks like a process to the queue.

    It holds the start ticket all the while, so that nobody else starts the run, or another one, between two leases.

    Attributes:
        pid: of the app; each worker has one of its own.
    """

    def __init__(self, first: Lease, take: TakeLease, askers: Askers, ticket: int):
        self.pid = os.getpid()
        self._lease, self._take, self._askers, self._ticket = first, take, askers, ticket
        self._run_dir = Path(first.run_dir)
        self._code: int | None = None
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._thread.start()

    def poll(self) -> int | None:
        """One of :mod:`rlhf_studio.exit_codes` when no more lease is taken for now; None before."""
        return None if self._thread.is_alive() else self._code

    def _run(self) -> None:
        self._code = FAILED
        try:
            self._askers.become(self._run_dir.name)
            self._work()
            self._code = OF_STATES.get(RunReader(self._run_dir).stored()[0], FAILED)
        except StoreError as error:
            logger.warning("A run on ZeroGPU could not be set aside: %s", error)
        finally:
            os.close(self._ticket)

    def _work(self) -> None:
        """Lease after lease, until the run has ended or waits. Raises StoreError."""
        reader = RunReader(self._run_dir)
        since = reader.stored()[1]
        if why := refusal(reader.config()):
            waiting.set_aside(self._run_dir, "failed", why, since)
            return
        pace, mode = Pace(step=reader.first_and_last(["time/total"])["time/total"][1] or 0.0), self._lease.mode
        while True:
            status = reader.status()
            seconds = pace.seconds(status.total_steps - status.step, tried=bool(status.device))
            lease = replace(self._lease, mode=mode, pace=pace, seconds=seconds)
            end = self._take_lease(lease)
            pace, mode = pace.then(end.pace), "resume"
            if why := waiting.why_not_again(end, lease.seconds, pace):
                waiting.set_aside(self._run_dir, "stopped", why, since)
            if why or not end.over:
                return

    def _take_lease(self, lease: Lease) -> LeaseEnd:
        """One lease; a problem where none was given, or where it was taken away."""
        try:
            with forks.guarded():
                return self._take(lease)
        except Exception as error:  # noqa: BLE001 - whatever the scheduler raises: the run waits, and says why
            logger.warning("A lease of a GPU failed: %s", error)
            return LeaseEnd(problem=waiting.why_no_lease(error))
