"""Work that takes too long for the event loop: a few pieces run at the same time, and only so many may wait."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
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
            return await asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, work)  # with the language of who asks
        finally:
            with self._lock:
                self._now -= 1

    def close(self) -> None:
        """Take no more work; what has not begun is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Turns:
    """``at_once`` pieces of work at the same time, for whose turns ``waiting`` others may wait. For the event loop alone.

    Args:
        of_one: how many there may be of one person, with those at work; None where it does not matter whose they are.
    """

    def __init__(self, at_once: int, waiting: int, of_one: int | None = None) -> None:
        self._free, self._most, self._of_one = asyncio.Semaphore(at_once), waiting, of_one
        self._waiting = 0
        self._of: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, whose: str = "") -> AsyncIterator[None]:
        """A block that begins when it is its turn. Raises :class:`TooBusy` when too much waits."""
        if self._waiting >= self._most or (self._of_one is not None and self._of[whose] >= self._of_one):
            raise TooBusy(BUSY)
        self._of[whose] += 1
        try:
            self._waiting += 1
            try:
                await self._free.acquire()
            finally:
                self._waiting -= 1
            try:
                yield
            finally:
                self._free.release()
        finally:
            self._of[whose] -= 1
            self._of += Counter()  # forget people who have nothing left
