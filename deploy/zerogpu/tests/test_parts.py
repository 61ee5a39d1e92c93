"""The parts of a lease, one by one: the clock, the length, the words, what is refused, and the app's entry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from gradio.context import LocalContext
from leases import refusals, waiting
from leases.askers import MOST, Askers
from leases.clock import OVER, Clock
from leases.lease import Lease, LeaseEnd, Pace

from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config.recipes import load_recipe

EXAMPLE = Path(__file__).parents[1]


def changed(**sections: dict[str, Any]) -> RunConfig:
    config = load_recipe("world").config.model_dump(mode="json")
    for section, values in sections.items():
        config[section] |= values
    return RunConfig.model_validate(config)


@pytest.mark.parametrize(
    ("pace", "looks", "answers"),
    [
        (Pace(), [8, 28, 48, 68], ["", "", "", OVER]),  # 68 + 1.25 * 20 + 5 = 98 > 90
        (Pace(step=40), [50], [OVER]),  # what an earlier lease has measured
        (Pace(step=40), [30, 40], ["", ""]),  # steps have become faster
        (Pace(save=30), [8, 28, 48], ["", "", OVER]),  # 48 + 25 + 30 + 5 > 90
    ],
)
def test_the_clock_ends_a_lease_before_a_step_that_may_not_fit(pace: Pace, looks: list[float], answers: list[str]) -> None:
    times = iter([0.0, *looks])
    clock = Clock(Lease("run", "train", 90, pace), now=lambda: next(times))
    assert [clock.due() for _ in looks] == answers


def test_what_the_fork_took_is_gone_from_the_lease() -> None:
    times = iter([1000.0, 1001.0])
    assert Clock(Lease("run", "train", 90), used=85.0, now=lambda: next(times)).due() == OVER


@pytest.mark.parametrize(
    ("pace", "steps", "tried", "seconds"),
    [
        (Pace(), 5, False, 60),  # nobody knows yet
        (Pace(load=58), 5, True, 100),  # the first lease had no time for a step
        (Pace(load=10, step=8, save=3), 6, True, 78),  # 10 + 6 * 10 + 3 + 5
        (Pace(load=10, step=8, save=3), 1, True, 60),
        (Pace(load=10, step=8, save=3), 500, True, 100),
    ],
)
def test_the_length_of_a_lease(pace: Pace, steps: int, tried: bool, seconds: int) -> None:
    assert pace.seconds(steps, tried=tried) == seconds


def test_a_lease_that_measured_nothing_leaves_what_is_known() -> None:
    assert Pace(10, 8, 3).then(Pace(load=12)) == Pace(12, 8, 3)


@pytest.mark.parametrize(
    ("title", "text", "start"),
    [
        ("ZeroGPU quota exceeded", "You have exceeded your quota. ", "Waits for GPU time: You have exceeded your quota. Resume"),
        ("ZeroGPU queue timeout", "No GPU was available after 60s", "Waits for a GPU: No GPU was available after 60s. Resume"),
        ("ZeroGPU client error", "Expired ZeroGPU proxy token", "Waits for a GPU: Expired ZeroGPU proxy token. Resume"),
        ("ZeroGPU worker error", "GPU task aborted", "The GPU was taken away in the middle of a lease."),
        ("ZeroGPU worker error", "MemoryError", "The process that had the GPU failed (MemoryError); engine.log may say more. Resume"),
    ],
)
def test_why_a_run_waits(title: str, text: str, start: str) -> None:
    assert waiting.why_no_lease(gr.Error(text, title=title)).startswith(start)
    assert waiting.why_no_lease(gr.Error(text, title=title)).endswith("from the quota of whoever presses it.")


def test_a_scheduler_that_cannot_be_reached_is_named_by_its_error() -> None:
    assert waiting.why_no_lease(ConnectionError()).startswith("Waits for a GPU: ConnectionError. Resume")


def test_when_no_other_lease_is_taken_by_itself() -> None:
    assert waiting.why_not_again(LeaseEnd(over=True, steps=3), 100, Pace()) == ""
    assert waiting.why_not_again(LeaseEnd(), 100, Pace()) == ""
    assert waiting.why_not_again(LeaseEnd(over=True, steps=3, paused=True), 100, Pace()) == waiting.PAUSED
    assert waiting.why_not_again(LeaseEnd(over=True), 60, Pace(load=58)) == ""  # a longer one may do
    assert "take 119 seconds or more, and a lease has 100" in waiting.why_not_again(LeaseEnd(over=True), 100, Pace(10, 80, 4))


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (changed(), ""),
        (changed(engine={"processes": 2}), "one process"),
        (changed(reward={"components": [{"kind": "human", "name": "people"}]}), "waits for people"),
        (load_recipe("world-sft").config, "only PPO"),
    ],
)
def test_what_cannot_be_trained_in_leases(config: StageConfig, part: str) -> None:
    assert part in refusals.refusal(config) and bool(part) == bool(refusals.refusal(config))


def test_a_policy_of_half_a_billion_weights_is_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([494_032_768, 1_100_048_384])
    monkeypatch.setattr(refusals, "check_causal_lm", lambda name, revision: SimpleNamespace(parameters=next(sizes)))
    assert refusals.refusal(changed()) == ""
    assert "has 1.1 billion weights" in refusals.refusal(changed())


def test_the_newest_request_for_a_run_counts_and_is_not_kept_for_ever() -> None:
    askers = Askers()
    for run, token in (("a", "old"), ("a", "new"), ("b", "other")):
        LocalContext.request.set(SimpleNamespace(headers={"x-ip-token": token}))
        askers.note(run)
    askers.become("a")
    assert LocalContext.request.get(None).headers["x-ip-token"] == "new"
    askers.become("a")
    assert LocalContext.request.get(None) is None
    for number in range(MOST):
        askers.note(f"run-{number}")
    askers.become("b")
    assert LocalContext.request.get(None) is None


def test_without_spaces_the_entry_says_what_to_start() -> None:
    command = [sys.executable, "-c", "import sys; sys.modules['spaces'] = None; import runpy; runpy.run_path('zero_app.py')"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLE)
    assert result.returncode == 1 and result.stderr.strip().endswith("start the app with: python app.py")
