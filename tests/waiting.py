"""Waiting in tests: for what must come true, never for a fixed time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import psutil


def wait_until(condition: Callable[[], Any], seconds: float = 20.0, every: float = 0.01) -> Any:
    """Ask again every ``every`` seconds until the condition holds, and return what it gave; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"still not so after {seconds} s"
        time.sleep(every)


def gone(pid: int) -> bool:
    """Whether the process has ended, though perhaps nobody has collected it yet: that is the init process's task.

    Its first thread may have ended before the others: until they have too, its pipes are open.
    """
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE) and len(os.listdir(f"/proc/{pid}/task")) == 1
    except (psutil.NoSuchProcess, FileNotFoundError):
        return True
