"""What is dear to build is built once in a session of tests, however many workers it has, and read by all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """The folder ``name``, filled by ``build(folder)`` in whichever worker asks first. Do not change what is in it: copy it."""
    base = factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # each worker of pytest-xdist has a folder of its own below it
    folder, ready = shared / name, shared / f"{name}.ready"
    with FileLock(shared / f"{name}.lock"):
        if not ready.exists():
            folder.mkdir()
            build(folder)
            ready.touch()
    return folder
