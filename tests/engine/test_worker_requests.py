"""Requests that come while a run is loading, twice, or in a form that nobody knows."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from rlhf_studio.engine.process import control, stopping, worker
from rlhf_studio.engine.process.stopping import Signals
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE
from rlhf_studio.runs import commands
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    create_run(tmp_path / "run", small_config(tmp_path, ppo={"steps": 1}), name="run", state="loading")
    return tmp_path / "run"


def while_loading(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    original = worker.choose_compute

    def interrupted(config: Any) -> Any:
        action()
        return original(config)

    monkeypatch.setattr(worker, "choose_compute", interrupted)


def test_a_pause_while_loading_takes_effect_before_the_first_step(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    while_loading(monkeypatch, lambda: send_command(run_dir, "pause"))
    seen: list[tuple[str, int]] = []

    def woken(seconds: float) -> None:
        seen.append((RunReader(run_dir).status().state, RunReader(run_dir).status().step))
        send_command(run_dir, "continue")

    monkeypatch.setattr(control, "sleep", woken)
    assert run_engine(run_dir, "train") == DONE
    assert seen == [("paused", 0)]


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Signals():
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] != before
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_second_signal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, Any]] = []
    monkeypatch.setattr(stopping.signal, "raise_signal", lambda number: raised.append((number, signal.getsignal(number))))
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == "signal SIGINT" and raised == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert raised == [(signal.SIGTERM, signal.SIG_DFL)]  # the system's own way: the process ends


def test_an_unknown_request_is_answered(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer app may know more than this engine."""
    monkeypatch.setattr(commands, "CommandKind", Literal["dance"])
    while_loading(monkeypatch, lambda: send_command(run_dir, "dance"))  # type: ignore[arg-type]
    assert run_engine(run_dir, "train") == DONE
    with sqlite3.connect(run_dir / "run.db") as connection:
        assert connection.execute("SELECT kind, outcome FROM commands").fetchall() == [("dance", "unknown command")]
    connection.close()
