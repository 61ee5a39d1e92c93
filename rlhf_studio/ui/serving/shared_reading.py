"""A reading of the disk that everybody who asks at about the same time shares."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedReading(Generic[T]):
    """What ``read`` gives, kept for ``seconds``; whoever asks while it is read waits for that reading, and only one thread reads.

    What ``read`` raises is not kept: it goes to those who wait.
    """

    def __init__(self, read: Callable[[], T], seconds: float) -> None:
        self._read, self._seconds = read, seconds
        self._lock = threading.Lock()  # held while it is read
        self._kept: tuple[float, T] | None = None  # when it was read, and what was found
        self._begun: asyncio.Future[T] | None = None

    async def get(self) -> T:
        """For the event loop, which goes on meanwhile."""
        if (kept := self._fresh()) is not None:
            return kept[1]
        if self._begun is None or self._begun.done():
            self._begun = asyncio.ensure_future(asyncio.to_thread(self.get_in_thread))
        return await asyncio.shield(self._begun)  # who goes away does not end it for the others

    def get_in_thread(self) -> T:
        """The same for a thread."""
        with self._lock:
            if (kept := self._fresh()) is None:
                found = self._read()
                self._kept = kept = (time.monotonic(), found)
            return kept[1]

    def _fresh(self) -> tuple[float, T] | None:
        kept = self._kept
        return kept if kept is not None and time.monotonic() - kept[0] <= self._seconds else None

    def forget(self) -> None:
        """Something has changed: who asks after this call gets what is read after it."""
        with self._lock:
            self._kept = None
