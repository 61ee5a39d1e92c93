"""The package where Python has no POSIX modules and calls, as on Windows: a pretence, as no Windows is at hand.

What it can show: every module loads, and what stands in the other half of ``rlhf_studio/system.py`` works together. What it cannot: how
Windows' own locks, pipes and processes behave.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import pkgutil
import signal
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.runs.store_helpers import in_child

OTHERS = (
    *("accelerate", "asyncio", "datasets", "gradio", "numpy", "orjson", "pandas", "peft", "plotly", "pydantic", "resource", "torch"),
    *("transformers.models.auto", "uvicorn", "webbrowser"),
)
"""What is not ours to try: loaded before the pretence begins."""


def pretend() -> None:
    """Take away what Windows has not, and load every module of ours anew."""
    warnings.simplefilter("ignore")
    for name in OTHERS:
        importlib.import_module(name)
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401 - lazily loaded

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 1 << 30 and count == 1
        try:
            flock(descriptor, exclusive)
        except BlockingIOError:
            raise PermissionError(13, "locked") from None

    flock, exclusive, kill = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB, signal.SIGKILL
    for name in ("fcntl", "resource", "pwd", "grp", "termios"):
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
    for owner, names in {
        os: "O_NOFOLLOW O_CLOEXEC O_NONBLOCK O_NOCTTY O_DIRECTORY P_PID WEXITED WNOWAIT WNOHANG fork getpgid getpgrp getsid geteuid getuid "
        "killpg mkfifo pread pwrite register_at_fork sched_getaffinity set_blocking setsid waitid",
        signal: "SIGHUP SIGKILL pthread_kill pthread_sigmask siginterrupt",
    }.items():
        for name in names.split():
            delattr(owner, name)
    sys.platform = "win32"
    for name in [name for name in sys.modules if name.split(".")[0] == "rlhf_studio"]:
        del sys.modules[name]
    package = importlib.import_module("rlhf_studio")
    for module in pkgutil.walk_packages(package.__path__, "rlhf_studio."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    signal.SIGKILL = kill  # psutil ends processes with it here


def work(folder: Path) -> str:
    """Record a run, lock, start, keep a secret, open an export, and talk with another process."""
    pretend()
    from rlhf_studio import system
    from rlhf_studio.attach import Studio
    from rlhf_studio.child_process.line_process import LineEnded, LineProcess, LineTimeout
    from rlhf_studio.runs import liveness
    from rlhf_studio.runs.classroom.secret import keep_secret, kept_secret
    from rlhf_studio.runs.errors import AlreadyRunning
    from rlhf_studio.runs.reader import RunReader
    from rlhf_studio.ui.exports.downloads import open_export

    assert system.WINDOWS and system.lock is system.lock_of_process

    def refused(call: Callable[[], object], kind: type[BaseException]) -> bool:
        try:
            call()
        except kind:
            return True
        raise AssertionError(call)

    with Studio(run="mine", workspace=folder) as studio:
        for step in range(3):
            studio.step(
                prompts=["a", "b"], response_tokens=[["x", "y"], ["z"]], logprobs=[[-1.0, -0.5], [-2.0]], rewards={"good": [step, 1.0]}
            )
        run = studio.run_dir
        assert liveness.is_alive(run)
        refused(liveness.EngineLock(run).acquire, AlreadyRunning)
    assert RunReader(run).status().step == 3 and not liveness.is_alive(run)
    assert [path.name for path in run.parent.iterdir()] == [run.name]  # no lock of the new folder is left

    ticket, other = liveness.StartTicket(run), liveness.StartTicket(run)
    ticket.take()
    assert liveness.is_starting(run) and refused(other.take, AlreadyRunning)
    ticket.close()
    assert not liveness.is_starting(run)
    liveness.announce_start(run)
    assert liveness.starter_pid(run) == os.getpid()
    with liveness.EngineLock(run):
        assert not liveness.is_starting(run)

    keep_secret(folder, "token", "abc")
    assert kept_secret(folder, "token") == "abc"
    (run / "exports").mkdir(exist_ok=True)
    (run / "exports" / "table.csv").write_text("a")
    (run / "exports" / "link.csv").symlink_to(run / "exports" / "table.csv")
    assert os.read(open_export(run, "table.csv"), 9) == b"a"
    refused(lambda: open_export(run, "link.csv"), FileNotFoundError)

    echo = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    child = LineProcess([sys.executable, "-c", echo])
    assert child.ask({"a": "b" * 200_000}, 60, 1_000_000) == {"a": "b" * 200_000}
    refused(lambda: child.receive(0.0, 100), LineTimeout)
    child.kill()
    refused(lambda: child.receive(60, 100), LineEnded)
    assert not psutil.pid_exists(child.pid)
    ended = LineProcess([sys.executable, "-c", "raise SystemExit(5)"])
    try:
        ended.receive(60, 100)
    except LineEnded as error:
        assert error.code == 5
    return "all of it"


@pytest.mark.slow
def test_every_module_loads_and_runs_are_recorded_without_posix(tmp_path: Path) -> None:
    assert in_child(lambda: work(tmp_path)) == "'all of it'"
