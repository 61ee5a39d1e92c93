"""Which tests are quick: ``pytest -m quick`` runs everything that is not marked otherwise. And one thread for each process."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from rlhf_studio.trl.table import name_trl_in_errors

# Tests run side by side, and many start processes: with a thread for each core in all of them they would wait for one another.
# Set before anything imports torch, and handed on to whatever a test starts; a test that is about threads asks for its own.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# bitsandbytes loads torch's whole compiler with it, a quarter of what every engine needs to start; nothing here is compiled.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

# The many processes that tests start read each module compiled, also where the environment forbids to write them down.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Runs are written to be safe on a disk, and tests write hundreds of them: in memory, where there is room, the same calls wait for no disk.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

settings.register_profile("untimed", deadline=None)  # no test is about time
settings.load_profile("untimed")

name_trl_in_errors()  # as every program does that asks for settings

OTHERWISE = ("slow", "browser", "long")

# Whoever gets one of these last works on it alone.
LONGEST_JOURNEYS = ("test_main_path.py", "test_space.py", "test_everywhere.py", "test_class.py")

# The modules and tests are close to a million objects that stay to the end. To look through them for cycles again and again takes
# a third of the time in which they are loaded: the collector begins after them and leaves them out.
gc.disable()


@pytest.hookimpl(tryfirst=True)  # before pytest's own hook drops what ``-m`` does not ask for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(name) for name in OTHERWISE):
            item.add_marker("quick")
    # Playwright's event loop runs in a worker's main thread as long as its Chromium does: ``asyncio.run`` would fail after it.
    items.sort(key=lambda item: (item.get_closest_marker("browser") is not None, item.path.name not in LONGEST_JOURNEYS))


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """One worker more than cores for ``-n auto``: tests of pages and processes wait for most of their time."""
    workers = yield
    return workers if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else workers + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    one_web_app_is_enough()
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000)  # instead of 700, as small models make many objects
    gc.enable()


def one_web_app_is_enough() -> None:
    """Gradio makes a whole web app when pages are begun, when they are ended, and for their queue. Nobody asks those: only the fourth is
    served. To make the others takes half of the time in which an app of ours starts."""
    if "gradio.blocks" in sys.modules:
        from gradio.routes import App

        made = App.create_app
        served = staticmethod(lambda *given, **named: None if named == {"mcp_server": False} else made(*given, **named))
        pytest.MonkeyPatch().setattr(App, "create_app", served)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    gc.disable()  # or Python's own end looks through them once more
    gc.freeze()
