"""Ends an engine before its lease is over, with a checkpoint."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from leases.lease import RESERVE, SLOWER, Lease, LeaseEnd, Pace
from rlhf_studio.engine.process.stopping import STOP_COMMANDS, Signals, StopRequested, asked_by
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.runs.writer import RunWriter

OVER = "the lease of the GPU is nearly over"
NEXT = "Waits for the next lease of a GPU"


class Clock(Signals):
    """Takes the place of an engine's signals, because a lease's engine works in a thread, where Python gives none.

    The engine asks it before each step. When another step and its checkpoint may not fit, it ends this lease's part of the run.

    Args:
        used: seconds of the lease that are gone already.
        now: the time in seconds, from any beginning.
    """

    def __init__(self, lease: Lease, used: float = 0.0, now: Callable[[], float] = time.monotonic):
        super().__init__()
        self._now, self._known = now, lease.pace
        self._began = now() - used
        self._ends = self._began + lease.seconds
        self._looked: float | None = None
        self._pace = Pace()
        self._writer: RunWriter | None = None
        self._steps_before = self._steps = 0
        self._over = self._paused = False

    def end(self) -> LeaseEnd:
        """What became of the lease, once the engine has ended."""
        return LeaseEnd(self._over, self._paused, self._steps, self._pace)

    def due(self) -> str:
        """As in :class:`Signals`. The time between two calls is that of a step, or less while the run waits."""
        now = self._now()
        if self._looked is None:
            self._pace = Pace(load=now - self._began)
            self._steps_before = RunReader(self._writer.run_dir).status().step if self._writer else 0
        else:
            self._pace = Pace(self._pace.load, max(self._pace.step, now - self._looked))
        self._looked = now
        needed = SLOWER * (self._pace.step or self._known.step) + self._known.save + RESERVE
        return OVER if now + needed > self._ends else super().due()

    def record(self, writer: RunWriter, reason: str, cause: str = "") -> None:
        """As in :class:`Signals`; a run whose lease is over has not ended."""
        reader = RunReader(writer.run_dir)
        self._steps = reader.status().step - self._steps_before
        if reason != OVER:
            super().record(writer, reason, cause)
            return
        self._over, self._paused = True, reader.stored()[0] == "paused"
        self._pace = Pace(self._pace.load, self._pace.step, self._now() - (self._looked or self._began))
        count = "1 step" if self._steps == 1 else f"{self._steps} steps"
        writer.event(EventRecord("info", "lease", f"A lease of the GPU is over: {count} in {self._now() - self._began:.0f} seconds."))
        writer.set_state("loading", phase=NEXT)

    def while_loading(self, writer: RunWriter, end_process: Callable[[], None]) -> contextlib.AbstractContextManager[object]:
        """As in :class:`Signals`. Requests are seen between two parts of the load: no thread may end this process, others wait for it."""
        self._writer = writer
        return contextlib.nullcontext()

    def raise_if_received(self) -> None:
        """As in :class:`Signals`, for requests in the run folder."""
        stops = [command for command in self._writer.pending_commands() if command.kind in STOP_COMMANDS] if self._writer else []
        if stops:
            raise StopRequested(asked_by(stops[0]))

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing was changed."""
