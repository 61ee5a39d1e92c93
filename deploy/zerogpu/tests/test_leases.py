"""Runs in leases of a stand-in for ZeroGPU (``scenarios.py``): they wait, go on, and end like a run that was never interrupted."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_studio.runs.reader import RunReader

SCENARIOS = Path(__file__).with_name("scenarios.py")
INTERRUPTED = ["taken", "quota"]
STEPS = 4

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, str(SCENARIOS), str(tmp_path_factory.mktemp("leases"))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert result.returncode == 0, result.stdout + result.stderr
    return dict(json.loads(result.stdout.splitlines()[-1]))


def weights(folder: Path) -> dict[str, str]:
    """The hash of each file with tensors of the last checkpoint: policy, critic, optimizer, random numbers."""
    saved = folder / "checkpoints" / f"step-{STEPS:06d}"
    hashes = {str(path.relative_to(saved)): hashlib.sha256(path.read_bytes()).hexdigest() for path in saved.rglob("*.safetensors")}
    assert {"optimizer.safetensors", "random.safetensors", "value_head.safetensors"} <= hashes.keys()
    return hashes


def recorded(folder: Path) -> list[Any]:
    """All numbers of all steps, but for time and memory, which no two runs share."""
    reader = RunReader(folder)
    metrics = [
        (step, {name: value for name, value in of_step.items() if name.partition("/")[0] not in ("time", "speed", "memory")})
        for step, of_step in reader.metrics_since(0)
    ]
    rollouts = [reader.rollouts(step) for step in range(1, STEPS + 1)]
    return [metrics, [(rollout.response, rollout.score, rollout.kl, rollout.parts) for of_step in rollouts for rollout in of_step]]


@pytest.mark.parametrize("name", INTERRUPTED)
def test_a_run_in_leases_ends_as_one_that_was_never_interrupted(played: dict[str, Any], name: str) -> None:
    ordinary, leased = Path(played["ordinary"]["folder"]), Path(played[name]["folder"])
    assert weights(leased) == weights(ordinary)
    assert recorded(leased) == recorded(ordinary)
    assert len(recorded(ordinary)[0]) == STEPS and np.isfinite(recorded(ordinary)[0][-1][1]["objective/kl"])


def test_a_worker_that_is_killed_or_late_loses_the_steps_since_the_checkpoint_and_no_more(played: dict[str, Any]) -> None:
    killed, late, done = played["taken"]["waited"]
    assert (killed["state"], killed["step"], killed["saved"]) == ("stopped", 3, [2])  # in step 4; step 3 is trained again
    assert (late["state"], late["step"], late["saved"]) == ("stopped", 2, [2])  # in that step 3
    for waits in (killed, late):
        assert waits["cause"].startswith("The GPU was taken away in the middle of a lease")
    assert done["state"] == "finished"


def test_a_run_whose_quota_is_gone_waits_and_says_what_the_scheduler_said(played: dict[str, Any]) -> None:
    *waited, done = played["quota"]["waited"]
    assert [(waits["state"], waits["step"]) for waits in waited] == [("stopped", 0), ("stopped", 0), ("stopped", 2)]
    for waits in waited:
        assert waits["cause"] == (
            "Waits for GPU time: You have exceeded your free ZeroGPU quota (60s requested vs. 3s left). Try again in 9:12:00. "
            "Resume, on the Runs page, takes another lease, from the quota of whoever presses it."
        )
    assert done["state"] == "finished"


def test_leases_are_taken_from_the_quota_of_whoever_asked_last(played: dict[str, Any]) -> None:
    assert [token for _, token in played["quota"]["asked"]] == ["person 0", "person 1", "person 2", "person 2", "person 3"]
    assert [token for _, token in played["taken"]["asked"]] == ["person 0", "person 0", "person 1", "person 2"]


def test_a_short_run_asks_for_short_leases(played: dict[str, Any]) -> None:
    assert {seconds for name in INTERRUPTED for seconds, _ in played[name]["asked"]} == {60}


def test_viewers_see_a_run_at_work_between_two_leases_that_follow(played: dict[str, Any]) -> None:
    states = played["taken"]["seen"]
    before = [state for state, _ in states[: states.index(["stopped", 3])]]
    assert {"running"} < set(before) <= {"queued", "loading", "running"} and "queued" not in before[1:]


def test_each_lease_is_in_the_runs_diary(played: dict[str, Any]) -> None:
    texts = [event.text for event in RunReader(Path(played["quota"]["folder"])).events_since(0) if event.kind == "lease"]
    assert [text.split(":")[0] for text in texts] == [
        *("Waits for GPU time", "Waits for GPU time", "A lease of the GPU is over", "Waits for GPU time"),
    ]
