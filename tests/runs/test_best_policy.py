"""Which policy is the best: one rule for the checkpoint that is kept, for the export and for what is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhf_studio.runs import checkpoints
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fork import best_step
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import BestPolicy, StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import new_run
from tests.runs.test_checkpoints import checkpoint, folder_of

# Step n + 1 samples with the policy that step n left, so policy 1 has 0.9 and 0.1, policy 2 has 0.3 and 0.2, policy 3 has 0.5 and 0.9.
SCORES, GOLD = [1.0, 0.9, 0.3, 0.5], [1.0, 0.1, 0.2, 0.9]


def made(folder: Path, *steps: int, gold: bool = True, keep_best: str | None = None) -> RunReader:
    run = new_run(folder, steps=4)
    with RunWriter(run) as writer:
        for step in range(1, 5):
            metrics = {"objective/scores": SCORES[step - 1]} | ({"gold/score": GOLD[step - 1]} if gold else {})
            writer.commit_step(StepRecord(step, metrics, []))
    for step in steps:
        path = checkpoint(run, step) / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"keep_best": keep_best}))
    return RunReader(run)


def test_the_step_after_a_policy_tells_how_good_it_is(tmp_path: Path) -> None:
    assert made(tmp_path / "gold", 1, 2, 3, 4).best_policy() == BestPolicy(3, "gold/score", 0.9)
    assert made(tmp_path / "score", 1, 2, 3, 4, gold=False).best_policy() == BestPolicy(1, "objective/scores", 0.9)
    assert made(tmp_path / "fewer", 2, 4).best_policy() == BestPolicy(2, "gold/score", 0.2)
    assert made(tmp_path / "last", 4).best_policy() is None, "no step has sampled with the last policy"
    assert made(tmp_path / "none").best_policy() is None


def test_the_checkpoint_that_is_kept_is_the_one_that_is_exported(tmp_path: Path) -> None:
    reader = made(tmp_path / "run", 1, 2, 3, 4, keep_best="objective/scores")
    best = BestPolicy(1, "objective/scores", 0.9)
    assert reader.best_policy() == best and [info.step for info in reader.checkpoints() if info.best] == [1]
    checkpoints.prune(folder_of(reader.run_dir, 4), 1, "objective/scores")
    assert [(info.step, info.best) for info in reader.checkpoints()] == [(1, True), (4, False)] and reader.best_policy() == best


def test_a_fork_begins_at_the_best_checkpoint(tmp_path: Path) -> None:
    assert best_step(made(tmp_path / "gold", 1, 2, 3, 4)) == 3
    run = made(tmp_path / "snapshot", 1, 2, 3)
    snapshots = run.run_dir / "snapshots"
    snapshots.mkdir()
    folder_of(run.run_dir, 3).rename(snapshots / "step-000003")
    assert (run.best_policy().step, best_step(run)) == (3, 2), "training cannot go on from a snapshot"
    with pytest.raises(StoreError, match="no score tells which is the best"):
        best_step(made(tmp_path / "last", 4))
    with pytest.raises(StoreError, match="no checkpoint yet"):
        best_step(made(tmp_path / "none"))


def test_a_history_that_was_given_up_does_not_count(tmp_path: Path) -> None:
    reader = made(tmp_path / "run", 1, 2)
    with RunWriter(reader.run_dir) as writer:
        writer.go_back(2)
    assert reader.best_policy() == BestPolicy(1, "gold/score", 0.1), "step 3, which measured policy 2, waits to be trained again"
