"""Work that is too long for the loop that answers everyone: a few threads, and a limit to how much may wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
BUSY = "Too many people are asking at once. Try again in a moment."


class TooBusy(Exception):
    """So much work waits already that this piece is not taken."""


class Bounded:
    """``threads`` threads, for which at most ``waiting`` pieces of work may wait."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most, self._now = threads + waiting, 0
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` gives, or raises. Raises :class:`TooBusy` when too much waits."""
        with self._lock:
            if self._now >= self._most:
                raise TooBusy(BUSY)
            self._now += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            with self._lock:
                self._now -= 1

    def close(self) -> None:
        """Take no more work; what has not begun is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
