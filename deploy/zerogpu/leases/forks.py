"""Forks of the app that are safe for its databases.

A fork copies what SQLite knows of its open files. Then a new connection in the child would rely on locks that only the parent holds, and
the parent could remove a file to which the child writes. So at the moment of a fork none of these files may be open. Every connection of
the store is short, and after :func:`install` ``sqlite3.connect`` makes each one as :class:`Counted`: a fork waits until no connection is
left, and no connection is made during a fork.

``people.db`` stays open in the app, and no worker ever opens it.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rlhf_studio.runs import paths
from rlhf_studio.runs.liveness import START_LOCK

PATIENCE = 5.0
NOT_SAFE = "The app was reading its databases without a pause, so that no process could be forked from it. Resume tries again."
_FILES = (paths.DATABASE, paths.STUDIO_DATABASE)

_connect = sqlite3.connect
_changed = threading.Condition(threading.Lock())
_open: weakref.WeakSet[Counted] = weakref.WeakSet()
_forking = False
_safe = True
_leasing = threading.local()


class Counted(sqlite3.Connection):
    """A connection during which no guarded fork happens."""

    def __init__(self, database: Any, *arguments: Any, **options: Any):
        if Path(str(database).partition("?")[0]).name in _FILES:
            with _changed:
                _changed.wait_for(lambda: not _forking)
                _open.add(self)
        super().__init__(database, *arguments, **options)

    def close(self) -> None:
        """Close it; a fork that waits for this goes on."""
        super().close()
        with _changed:
            _open.discard(self)
            _changed.notify_all()


def install() -> None:
    """Make connections countable, from now on and for as long as the process lives."""
    sqlite3.connect = functools.partial(_connect, factory=Counted)  # type: ignore[assignment]
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)


@contextmanager
def guarded() -> Iterator[None]:
    """Forks of this thread, in this block, wait for the databases."""
    _leasing.guards = True
    try:
        yield
    finally:
        _leasing.guards = False


def begin_worker() -> bool:
    """Call this first in a forked process: it closes what belongs to the parent. Returns whether the process may use databases."""
    _close_tickets()
    return _safe


def _before() -> None:
    global _forking, _safe
    _changed.acquire()
    if getattr(_leasing, "guards", False):
        _safe = _changed.wait_for(lambda: not _open, PATIENCE)
        _forking = True


def _after() -> None:
    global _forking
    _forking = False
    _changed.notify_all()
    _changed.release()


def _after_in_child() -> None:
    global _forking, _changed, _open
    _forking, _changed, _open = False, threading.Condition(threading.Lock()), weakref.WeakSet()


def _close_tickets() -> None:
    """A start ticket is held as long as any process has it open, and a fork copies all tickets that the app held. Close these copies."""
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder's own descriptor is closed by now
            if os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2] == START_LOCK:
                os.close(int(descriptor))
