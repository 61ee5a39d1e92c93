"""What the engine prints: lines in a log, a bar on a terminal."""

from __future__ import annotations

import io
import math

import pytest

from rlhf_studio.engine.process import console as console_module
from rlhf_studio.engine.process.console import Console
from rlhf_studio.runs.records import EventRecord, StepRecord


def record(step: int, **metrics: float) -> StepRecord:
    return StepRecord(step, {"objective/scores": 1.5, "objective/kl": 0.25, "time/total": 2.0, **metrics}, [])


def test_lines_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(60)
    for _ in range(3):
        console.phase("Loading the reward model")
    console.step(record(7))
    console.step(record(8, **{"gold/score": 0.5, "objective/kl": math.nan}))
    skipped = EventRecord("warning", "skip", "This update was left out: no luck.")
    console.step(StepRecord(9, {"time/total": 2.0}, [], [], [EventRecord("info", "early_stop", "quiet"), skipped]))
    console.say("done")
    assert capsys.readouterr().out.splitlines() == [
        "Loading the reward model",
        "step 7/60  score 1.500  kl 0.25  2.00 s",
        "step 8/60  score 1.500  kl nan  gold 0.500  2.00 s",
        "step 9/60  not scored  2.00 s",
        "This update was left out: no luck.",
        "done",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(console_module.sys, "stderr", terminal)
    console = Console(60)
    console.phase("Loading the reward model")
    console.step(record(7))
    console.step(record(9))
    console.say("stopped")
    shown = terminal.getvalue()
    assert "Loading the reward model" in shown and "9/60" in shown and "score 1.500" in shown
    assert capsys.readouterr().out == "stopped\n"
