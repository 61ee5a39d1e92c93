"""Ending an engine on request: at once while it loads, when nothing is at stake; with a checkpoint once it trains.

While it loads, the main thread may be in a long Python loop that builds layers: there the signal's handler raises
:class:`StopRequested`. Or it may be in C code, where Python runs no handler: then a thread, :class:`StopWatcher`, ends the process
after :data:`GRACE_SECONDS`.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rlhf_studio.language import S_
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.runs.writer import Command, RunWriter
from rlhf_studio.system import signal_main_thread

GRACE_SECONDS = 5.0  # from a request to stop to the end of a process whose main thread does not return from its call
POLL_SECONDS = 0.5  # between two looks at the requests in the run folder
OPERATOR = S_("asked by an operator")
STOP_COMMANDS = ("stop", "discard")  # while a run loads there is nothing to save, so both mean the same
STOPS = (signal.SIGTERM, signal.SIGINT)


def asked_by(command: Command) -> str:
    """Why a run is to stop, for the record: with who sent the request, when it says so."""
    by = command.payload.get("by")
    return S_(f"asked by {by[:80]}") if isinstance(by, str) and by else OPERATOR


def cause_of(command: Command) -> str:
    """Why the run stops when no person has asked for it; empty when one has."""
    cause = command.payload.get("cause")
    return cause[:200] if isinstance(cause, str) else ""


class StopRequested(BaseException):
    """The run is to stop; the reason is the message.

    Not an ``Exception``: libraries that load models catch exceptions, try something else, and go on.

    Attributes:
        cause: one sentence, where no person asked for the stop: it stands in the record of the run.
    """

    def __init__(self, reason: str, cause: str = ""):
        super().__init__(reason)
        self.cause = cause


class Signals:
    """SIGTERM and SIGINT. Within :meth:`at_once` they raise :class:`StopRequested`; elsewhere they are noted in ``received``.

    What is noted makes the run write a checkpoint and end after its step, or inside a long one. A second signal ends the process without
    waiting for that.

    Attributes:
        received: why the run is to stop; empty when it is not.
    """

    def __init__(self) -> None:
        self.received = ""
        self._requested = ""
        self._at_once = self._raised = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._handle) for number in STOPS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """A block that may be interrupted at any moment. Raises :class:`StopRequested`, also for what was received before."""
        self._at_once = True
        try:
            self.raise_if_received()
            yield
        finally:
            self._at_once = False

    def raise_if_received(self) -> None:
        """Raise :class:`StopRequested` if a stop was received: some libraries catch every exception, this one too."""
        if self.received:
            raise StopRequested(self.received)

    def due(self) -> str:
        """Asked before each step, and again and again while the run waits: why it is to stop now; empty when it is not."""
        return self.received

    def while_loading(self, writer: RunWriter, end_process: Callable[[], None]) -> contextlib.AbstractContextManager[object]:
        """A block that loads: requests to stop are seen during it, too. ``end_process`` as in :class:`StopWatcher`."""
        return StopWatcher(self, writer, end_process)

    def record(self, writer: RunWriter, reason: str, cause: str = "") -> None:
        """Put on record that the run ends here because of ``reason``, as :meth:`due` gave it or a person asked, or with a ``cause`` of
        its own. Raises StoreError."""
        record_stop(writer, reason, cause=cause)

    def request(self, reason: str) -> None:
        """Do as if a signal had come; from any thread. Returns at once; the main thread handles it as soon as it runs Python code."""
        self._requested = self._requested or reason
        signal_main_thread(signal.SIGTERM)

    def _handle(self, number: int, _frame: Any) -> None:
        again, self.received = self.received, self.received or self._requested or S_(f"signal {signal.Signals(number).name}")
        if self._at_once and not again:
            self._raised = True
            raise StopRequested(self.received)
        if again and not self._raised:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


class StopWatcher:
    """A thread that sees requests to stop while the main thread loads, and ends the process when the main thread does not react.

    Args:
        signals: where the requests go.
        writer: the run; requests in its folder count too.
        end_process: ends the process at once; another function in tests.
        grace_seconds: from a request to that end.
    """

    def __init__(self, signals: Signals, writer: RunWriter, end_process: Callable[[], None], grace_seconds: float | None = None):
        self._signals, self._writer, self._end_process = signals, writer, end_process
        self._grace_seconds = GRACE_SECONDS if grace_seconds is None else grace_seconds
        self._done = threading.Event()
        self._deadline: float | None = None
        self._reason = ""
        self._thread = threading.Thread(target=self._run, name="stop-watcher", daemon=True)

    def __enter__(self) -> StopWatcher:
        # Python's own C handler writes each signal's number here at once, also while no Python code runs in the main thread.
        # Windows waits for sockets alone, not for pipes.
        self._wakeup_out, self._wakeup_in = socket.socketpair()
        for end in (self._wakeup_out, self._wakeup_in):
            end.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup_in.fileno(), warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        self._done.set()
        self._wakeup_in.send(b"\0")
        self._thread.join()
        self._wakeup_out.close()
        self._wakeup_in.close()

    def _run(self) -> None:
        while not self._done.is_set():
            wait = POLL_SECONDS if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            if select.select([self._wakeup_out], [], [], wait)[0]:
                self._read_signals(self._wakeup_out.recv(64))
            elif self._deadline is None:
                self._read_commands()
            elif not self._done.is_set():
                self._end()
                return

    def _read_signals(self, numbers: bytes) -> None:
        stops = [signal.Signals(number).name for number in numbers if number in STOPS]
        if stops and self._deadline is None:
            self._reason = self._reason or S_(f"signal {stops[0]}")
            self._deadline = time.monotonic() + self._grace_seconds

    def _read_commands(self) -> None:
        with contextlib.suppress(StoreError):  # a disk that fails here fails in the main thread too, which says so
            stops = [command for command in self._writer.pending_commands() if command.kind in STOP_COMMANDS]
            if stops:
                self._reason = asked_by(stops[0])
                self._signals.request(self._reason)

    def _end(self) -> None:
        """Record the stop, which the main thread cannot do, then end the process."""
        with contextlib.suppress(StoreError):  # where it cannot be stored, the run shows as interrupted
            record_stop(self._writer, self._reason, S_(" while loading, in the middle of a call that did not return"))
        self._end_process()


def record_stop(writer: RunWriter, reason: str, more: str = "", cause: str = "") -> None:
    """Put a stop on record and acknowledge the requests for it; ``cause``: where no person asked for it. Raises StoreError."""
    stops = [command for command in writer.pending_commands() if command.kind in STOP_COMMANDS]
    cause = cause or (cause_of(stops[0]) if stops else "")
    for command in stops:
        writer.acknowledge(command.id, "done")
    writer.event(EventRecord("info", "stop", f"Stopped{more}: {reason}."))
    writer.set_state("stopped", cause=cause)
