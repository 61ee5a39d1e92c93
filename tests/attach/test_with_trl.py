"""TRL's own GRPOTrainer and RLOOTrainer, with and without a recording. Needs ``python -m benchmarks.peers trl-1.16``."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.peers import folder, interpreter
from rlhf_studio.runs import paths
from rlhf_studio.runs.reader import RunReader

ROOT = Path(__file__).parents[2]
NAME = "trl-1.16"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (folder() / NAME).exists(), reason=f"python -m benchmarks.peers {NAME} makes the environment"),
]


def trained(tmp_path: Path, kind: str, how: str) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    """(a sum over the weights, what the trainer had of each generation, what it logged)."""
    (tmp_path / how).mkdir()
    done = subprocess.run(
        [interpreter(NAME), ROOT / "tests/attach/trl_program.py", tmp_path / how, kind, how],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    digest = next(line for line in done.stdout.splitlines() if line.startswith("weights "))
    both = json.loads((tmp_path / how / "had.json").read_text())
    return digest, both["had"], both["logs"]


@pytest.mark.parametrize("kind", ["grpo", "rloo"])
def test_trl_trains_the_same_weights_and_every_number_is_its_own(tmp_path: Path, kind: str) -> None:
    plain, _, _ = trained(tmp_path, kind, "plain")
    for how in ("watch", "callback"):
        watched, had, logs = trained(tmp_path, kind, how)
        assert watched == plain
        (run,) = (tmp_path / how / paths.RUNS).iterdir()
        reader = RunReader(run)
        assert reader.status().state == "finished" and reader.status().step == len(had) == (10 if kind == "grpo" else 20)
        each, recorded = len(logs) // len(had), dict(reader.metrics_since(0))
        assert len(logs) == each * len(had) == 20
        for step, own in enumerate(had, 1):
            logged = logs[each * (step - 1) : each * step]
            assert recorded[step]["loss/policy_avg"] == pytest.approx(np.mean([log["loss"] for log in logged]))
            assert recorded[step]["lr"] == logged[-1]["learning_rate"]
            for row, ids in enumerate(own["ids"]):
                _is_the_same(reader.rollout(step, row), own, row, ids)


SUPERVISED = {
    "sft": ("sft", "sft/loss", "loss", "sft/eval_loss", "eval_loss"),
    "dpo": ("dpo", "dpo/margin", "rewards/margins", "dpo/eval_accuracy", "eval_rewards/accuracies"),
    "kto": ("dpo", "dpo/chosen_reward", "rewards/chosen", "dpo/eval_loss", "eval_loss"),
    "reward": ("reward_model", "reward_model/accuracy", "accuracy", "reward_model/eval_loss", "eval_loss"),
}


@pytest.mark.parametrize("kind", SUPERVISED)
def test_the_metrics_of_the_other_trainers_are_theirs(tmp_path: Path, kind: str) -> None:
    stage, ours, theirs, held_out, their_held_out = SUPERVISED[kind]
    plain, _, _ = trained(tmp_path, kind, "plain")
    watched, _, logs = trained(tmp_path, kind, "callback")
    assert watched == plain
    (run,) = (tmp_path / "callback" / paths.RUNS).iterdir()
    reader = RunReader(run)
    assert (reader.status().state, reader.status().stage, reader.status().step) == ("finished", stage, 20)
    recorded = dict(reader.metrics_since(0))
    for name, own, least in ((ours, theirs, 15), (held_out, their_held_out, 4)):
        given = {log["step"]: log[own] for log in logs if own in log}
        assert len(given) >= least
        assert {step: metrics[name] for step, metrics in recorded.items() if name in metrics} == pytest.approx(given)


def _is_the_same(record: Any, own: dict[str, Any], row: int, ids: list[int]) -> None:
    arrays = record.tokens.arrays
    assert record.prompt == own["prompts"][row] and record.response == own["completions"][row]
    assert record.tokens.response_ids.tolist() == ids
    weighted = np.array(own["rewards"][row], np.float32) * np.array([1.0, 0.5], np.float32)
    assert list(record.parts.values()) == [float(value) for value in weighted if not np.isnan(value)]
    assert record.score == pytest.approx(float(np.nansum(weighted)))
    assert arrays["advantages"].tolist() == [np.float32(own["advantages"][row])] * len(ids)
    for ours, theirs in (("logprobs", "old_per_token_logps"), ("ref_logprobs", "ref_per_token_logps")):
        if theirs in own:
            assert arrays[ours].tolist() == np.array(own[theirs][row], np.float32)[: len(ids)].tolist()
    if "old_sums" in own:
        assert float(arrays["logprobs"].sum()) == pytest.approx(own["old_sums"][row], abs=1e-4)
    assert {"logprobs", "ref_logprobs", "new_logprobs", "entropy"} <= arrays.keys()
