"""Ending an engine that loads: in Python code, in C code that does not return, and where several processes load together."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlhf_studio.engine.process import followers, stopping, worker
from rlhf_studio.engine.process.followers import RunEndWatcher
from rlhf_studio.engine.process.stopping import Signals, StopRequested
from rlhf_studio.exit_codes import STOPPED
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config
from tests.engine.kill_loop import exit_code, fork_engine
from tests.waiting import wait_until


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stopping, "POLL_SECONDS", 0.02)
    create_run(tmp_path / "run", small_config(tmp_path, ppo={"steps": 1}), name="run", state="loading")
    return tmp_path / "run"


def layers_without_end() -> None:
    while True:
        try:
            sum(range(100))
        except Exception:  # noqa: BLE001 - libraries do this
            continue


def a_call_that_does_not_return() -> None:
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2**31 - 1)  # C code, for many minutes; signals do not interrupt it


def hang(monkeypatch: pytest.MonkeyPatch, load: Callable[[], None]) -> None:
    def build(config: Any, compute: Any, report: Any, permissions: Any) -> Any:
        report("Loading for ever", None)
        load()

    monkeypatch.setattr(worker, "build_stage", build)


def loading(run_dir: Path) -> bool:
    return RunReader(run_dir).status().phase == "Loading for ever"


def ended(run_dir: Path) -> tuple[str, str, list[str]]:
    reader = RunReader(run_dir)
    return reader.status().state, reader.stored()[0], [event.text for event in reader.newest_events() if event.kind == "stop"]


def test_a_signal_ends_a_long_python_loop_at_once(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang(monkeypatch, layers_without_end)
    child = fork_engine(run_dir, "train")
    wait_until(lambda: loading(run_dir))
    os.kill(child, signal.SIGINT)
    assert exit_code(child) == STOPPED
    assert ended(run_dir) == ("stopped", "stopped", ["Stopped: signal SIGINT."])


def test_a_request_in_the_run_folder_ends_it_too(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang(monkeypatch, layers_without_end)
    child = fork_engine(run_dir, "train")
    wait_until(lambda: loading(run_dir))
    send_command(run_dir, "stop")
    assert exit_code(child) == STOPPED
    assert ended(run_dir) == ("stopped", "stopped", ["Stopped: asked by an operator."])
    assert RunReader(run_dir).status().stop_asked_age is None


def test_c_code_that_does_not_return_is_ended_from_outside(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GRACE_SECONDS", 0.1)
    hang(monkeypatch, a_call_that_does_not_return)
    child = fork_engine(run_dir, "train")
    wait_until(lambda: loading(run_dir))
    computed = psutil.Process(child).cpu_times().user
    wait_until(lambda: psutil.Process(child).cpu_times().user > computed + 0.2)  # within the call: nothing before it takes as long
    os.kill(child, signal.SIGTERM)
    assert exit_code(child) == STOPPED
    text = "Stopped while loading, in the middle of a call that did not return: signal SIGTERM."
    assert ended(run_dir) == ("stopped", "stopped", [text])


def test_once_training_it_is_an_orderly_stop() -> None:
    with Signals() as signals:
        with signals.at_once():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == "signal SIGTERM"
        with pytest.raises(StopRequested, match="SIGTERM"), signals.at_once():
            raise AssertionError("what came before is raised first")


def test_a_second_signal_does_not_disturb_the_last_words() -> None:
    with Signals() as signals:
        with pytest.raises(StopRequested), signals.at_once():
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # it would end this very process
        os.kill(os.getpid(), signal.SIGINT)


# --- followers -----------------------------------------------------------------------------------------------------------------


def watched(monkeypatch: pytest.MonkeyPatch, states: list[tuple[str, float | None]], early: int = 3, after_end: int = 2) -> list[int]:
    """What a follower's watch ended the process with, which began at second 100 and sees these states one after the other."""
    monkeypatch.setattr(followers, "POLL_SECONDS", 0)
    monkeypatch.setattr(followers, "LOOKS_AT_EARLIER_END", early)
    monkeypatch.setattr(followers, "LOOKS_AFTER_END", after_end)
    left: list[int] = []
    seen, done = iter(states), threading.Event()

    def state() -> tuple[str, float | None]:
        if (now := next(seen, None)) is None:
            done.set()
            return "running", None
        if now[0] == "gone":
            raise StoreError("There is no run there.", "missing")
        return now

    def end_process(code: int) -> None:
        left.append(code)
        done.set()

    with RunEndWatcher(state, 100.0, end_process):
        assert done.wait(20)
    return left


def test_a_follower_leaves_once_the_run_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = [("stopped", 90.0), ("loading", None), ("loading", None)]
    assert watched(monkeypatch, [*begun, *[("stopped", 104.0)] * 3]) == [0]
    assert watched(monkeypatch, [*begun, *[("failed", 104.0)] * 3]) == [1]
    assert watched(monkeypatch, [*begun, *[("gone", None)] * 3]) == [1]
    assert watched(monkeypatch, [*begun, *[("stopped", 104.0)] * 2]) == []  # time to end by itself
    assert watched(monkeypatch, [("stopped", 104.0)] * 3) == [0]  # it began and ended before the first look


def test_a_follower_waits_for_a_run_that_was_stopped_before_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, [*[("stopped", 90.0)] * 3, ("loading", None), ("running", None)]) == []
    assert watched(monkeypatch, [*[("stopped", 101.0)] * 3, ("loading", None)]) == []  # by a clock that is a second ahead of ours
    assert watched(monkeypatch, [("stopped", 90.0)] * 4) == [0]
