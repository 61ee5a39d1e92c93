"""Ending an engine on request: at once while it loads, when nothing is at stake; with a checkpoint once it trains.

A load may sit in a long Python loop that builds layers: there the signal's handler raises :class:`StopRequested`. Or in C code,
where Python runs no handler: there a thread, :class:`Watch`, ends the process after :data:`PATIENCE` seconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.runs.writer import RunWriter

PATIENCE = 5.0  # seconds from a request to stop to the end of a process whose main thread does not come back
LOOK_SECONDS = 0.5  # between two looks at the requests in the run folder
OPERATOR = "asked by an operator"
STOPS = (signal.SIGTERM, signal.SIGINT)


class StopRequested(BaseException):
    """Somebody asked the run to stop; the reason is the message.

    No ``Exception``: libraries that load models catch those, try something else, and go on.
    """


class Signals:
    """SIGTERM and SIGINT. Within :meth:`at_once` they raise :class:`StopRequested`; elsewhere they are noted in ``received``.

    Then the run is to save and leave in order; a second signal is not waited for.

    Attributes:
        received: why the run is to stop; empty when it is not.
    """

    def __init__(self) -> None:
        self.received = ""
        self._asked = ""
        self._at_once = self._leaving = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._note) for number in STOPS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """A block that may be left at any moment. Raises :class:`StopRequested`, also for what was received before."""
        self._at_once = True
        try:
            self.heed()
            yield
        finally:
            self._at_once = False

    def heed(self) -> None:
        """Raise :class:`StopRequested` if something was received: for code that might have swallowed it."""
        if self.received:
            raise StopRequested(self.received)

    def ask(self, reason: str) -> None:
        """As if a signal had come; from any thread. Returns at once, the main thread hears of it as soon as it runs Python code."""
        self._asked = self._asked or reason
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _note(self, number: int, _frame: Any) -> None:
        again, self.received = self.received, self.received or self._asked or f"signal {signal.Signals(number).name}"
        if self._at_once and not again:
            self._leaving = True
            raise StopRequested(self.received)
        if again and not self._leaving:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


class Watch:
    """A thread that sees requests to stop while the main thread loads, and ends the process when that one does not come back.

    Args:
        signals: where the requests go.
        writer: the run; requests in its folder are heeded too.
        leave: ends the process at once; another function in tests.
        patience: seconds from a request to that end.
    """

    def __init__(self, signals: Signals, writer: RunWriter, leave: Callable[[], None], patience: float | None = None):
        self._signals, self._writer, self._leave = signals, writer, leave
        self._patience = PATIENCE if patience is None else patience
        self._over = threading.Event()
        self._deadline: float | None = None
        self._reason = ""
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        # Python's own C handler writes each signal's number here at once, also while no Python code runs in the main thread.
        self._woken, self._waker = os.pipe()
        for descriptor in (self._woken, self._waker):
            os.set_blocking(descriptor, False)
        self._waker_before = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        signal.set_wakeup_fd(self._waker_before)
        self._over.set()
        os.write(self._waker, b"\0")
        self._thread.join()
        os.close(self._woken)
        os.close(self._waker)

    def _run(self) -> None:
        while not self._over.is_set():
            wait = LOOK_SECONDS if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            if select.select([self._woken], [], [], wait)[0]:
                self._hear(os.read(self._woken, 64))
            elif self._deadline is None:
                self._look()
            elif not self._over.is_set():
                self._end()
                return

    def _hear(self, numbers: bytes) -> None:
        stops = [signal.Signals(number).name for number in numbers if number in STOPS]
        if stops and self._deadline is None:
            self._reason = self._reason or f"signal {stops[0]}"
            self._deadline = time.monotonic() + self._patience

    def _look(self) -> None:
        with contextlib.suppress(StoreError):  # a disk that fails here fails in the main thread too, which says so
            if any(command.kind == "stop" for command in self._writer.pending_commands()):
                self._reason = OPERATOR
                self._signals.ask(OPERATOR)

    def _end(self) -> None:
        """The last words that the main thread cannot say, then the end."""
        with contextlib.suppress(StoreError):  # where they cannot be stored, the run shows as interrupted
            record_stop(self._writer, self._reason, " while loading, in the middle of a call that did not return")
        self._leave()


def record_stop(writer: RunWriter, reason: str, more: str = "") -> None:
    """Put an orderly stop on record and answer those who asked for it. Raises StoreError."""
    for command in writer.pending_commands():
        if command.kind == "stop":
            writer.acknowledge(command.id, "done")
    writer.event(EventRecord("info", "stop", f"Stopped{more}: {reason}."))
    writer.set_state("stopped")
