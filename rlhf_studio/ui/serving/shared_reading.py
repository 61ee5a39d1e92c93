"""One reading of the disk for everybody who asks at about the same time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from rlhf_studio.language import LANGUAGES, language

T = TypeVar("T")


class SharedReading(Generic[T]):
    """The value that ``read`` gives, kept for ``seconds``. Only one thread reads; people who ask in the meantime wait for that reading.

    An exception of ``read`` is not kept: it goes to those who wait.
    """

    def __init__(self, read: Callable[[], T], seconds: float) -> None:
        self._read, self._seconds = read, seconds
        self._lock = threading.Lock()  # held while it is read
        self._last_read: tuple[float, T] | None = None  # when it was read, and what was found
        self._begun: asyncio.Future[T] | None = None

    async def get(self) -> T:
        """The value, for the event loop: it does not block the loop."""
        if (fresh := self._fresh()) is not None:
            return fresh[1]
        if self._begun is None or self._begun.done():
            self._begun = asyncio.ensure_future(asyncio.to_thread(self.get_in_thread))
        return await asyncio.shield(self._begun)  # one that is cancelled does not end the reading for the others

    def get_in_thread(self) -> T:
        """The value, for a thread."""
        with self._lock:
            if (fresh := self._fresh()) is None:
                value = self._read()
                self._last_read = fresh = (time.monotonic(), value)
            return fresh[1]

    def _fresh(self) -> tuple[float, T] | None:
        reading = self._last_read
        return reading if reading is not None and time.monotonic() - reading[0] <= self._seconds else None

    def forget(self) -> None:
        """Something has changed: whoever asks after this call gets a value that was read after it."""
        with self._lock:
            self._last_read = None


class SpokenReading(Generic[T]):
    """As :class:`SharedReading`, once for each language: what ``read`` gives is in the one that is spoken."""

    def __init__(self, read: Callable[[], T], seconds: float) -> None:
        self._of = {name: SharedReading(read, seconds) for name in LANGUAGES}

    async def get(self) -> T:
        """As :meth:`SharedReading.get`."""
        return await self._of[language()].get()

    def get_in_thread(self) -> T:
        """As :meth:`SharedReading.get_in_thread`."""
        return self._of[language()].get_in_thread()

    def forget(self) -> None:
        """As :meth:`SharedReading.forget`."""
        for reading in self._of.values():
            reading.forget()
