"""What a run keeps of its policy: the last checkpoints, the best one, and snapshots to sample from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlhf_studio.config import EngineConfig, RunConfig
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.stages import ppo
from rlhf_studio.exit_codes import DONE, FAILED
from rlhf_studio.inputs.estimate.disk import disk_bytes
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.runs import checkpoints
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import BestPolicy, StepRecord
from tests.engine.conftest import small_config

SCORES = [0.1, 0.9, 0.3, 0.9, float("nan"), 0.5]  # of the steps 1 to 6; the two best are equal


def scored(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Trainer.step

    def stepped(trainer: Trainer) -> StepRecord:
        record = original(trainer)
        return replace(record, metrics={**record.metrics, "objective/scores": SCORES[record.step - 1]})

    monkeypatch.setattr(Trainer, "step", stepped)


def kept(run_dir: Path) -> list[tuple[int, bool]]:
    return [(point.step, point.best) for point in RunReader(run_dir).checkpoints()]


def make(folder: Path, **changes: dict[str, Any]) -> Path:
    create_run(folder / "run", small_config(folder, **changes), name="run", state="loading")
    return folder / "run"


def test_the_best_checkpoint_is_kept_however_old_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that are equally good, the newer one. A step scores the policy that the step before it left, so the newest has no score."""
    scored(monkeypatch)
    run_dir = make(tmp_path, ppo={"steps": 6}, engine={"checkpoint_every": 1, "keep_checkpoints": 1, "keep_best": "objective/scores"})
    recorded: list[list[tuple[int, bool]]] = []
    original = checkpoints.prune

    def pruned(*arguments: Any) -> None:
        original(*arguments)
        recorded.append(kept(run_dir))

    monkeypatch.setattr(checkpoints, "prune", pruned)
    assert run_engine(run_dir, "train") == DONE
    assert recorded == [
        [(1, False)],
        [(1, True), (2, False)],
        [(1, True), (3, False)],
        [(3, True), (4, False)],
        [(3, True), (5, False)],
        [(3, True), (6, False)],
    ]
    assert RunReader(run_dir).best_policy() == BestPolicy(3, "objective/scores", 0.9)


def test_a_damaged_best_checkpoint_gives_way_to_the_next_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored(monkeypatch)
    run_dir = make(tmp_path, ppo={"steps": 3}, engine={"checkpoint_every": 1, "keep_checkpoints": 10, "keep_best": "objective/scores"})
    assert run_engine(run_dir, "train") == DONE
    assert kept(run_dir) == [(1, True), (2, False), (3, False)]
    (run_dir / "checkpoints" / "step-000001" / "state.json").write_bytes(b"{}")
    checkpoints.prune(run_dir / "checkpoints" / "step-000003", 1, "objective/scores")
    assert kept(run_dir) == [(2, True), (3, False)], "step 1 is damaged, so step 2 is the best"


def test_what_can_be_best_is_a_metric() -> None:
    choices = set(EngineConfig.model_fields["keep_best"].annotation.__args__)  # type: ignore[union-attr]
    names = {metric.name for metric in METRICS}
    assert choices - {"none", "eval_loss"} <= names
    assert {f"{stage}/eval_loss" for stage in ("sft", "reward_model", "dpo")} <= names  # of the stages that learn from examples


@pytest.mark.parametrize("lora", [False, True])
def test_snapshots_are_ordinary_model_folders(tmp_path: Path, lora: bool) -> None:
    """Loaded by transformers or peft, each has the weights that a checkpoint of its step has, and nothing that training alone needs."""
    run_dir = make(tmp_path, lora={"enabled": lora, "r": 4}, engine={"checkpoint_every": 1, "snapshot_every": 1})
    assert run_engine(run_dir, "train") == DONE
    snapshots = RunReader(run_dir).snapshots()
    assert [snapshot.step for snapshot in snapshots] == [1, 2]
    for snapshot in snapshots:
        folder, point = Path(snapshot.path), run_dir / "checkpoints" / Path(snapshot.path).name
        assert folder.parent == run_dir / "snapshots" and {path.name for path in folder.iterdir()} == {"policy", "manifest.json"}
        name = "adapter_model.safetensors" if lora else "model.safetensors"
        ours, theirs = load_file(folder / "policy" / name), load_file(point / "policy" / name)
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
        assert all(tensor.dtype is torch.float32 for tensor in ours.values())
        named = json.loads((folder / "manifest.json").read_text())["files"]
        assert set(named) == {str(path.relative_to(folder)) for path in (folder / "policy").iterdir()}
        assert snapshot.bytes < 0.5 * sum(path.stat().st_size for path in point.rglob("*") if path.is_file()) + 20_000
    tokenizer = AutoTokenizer.from_pretrained(Path(snapshots[0].path) / "policy")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "policy" if lora else Path(snapshots[0].path) / "policy")
    if lora:
        model = PeftModel.from_pretrained(model, Path(snapshots[0].path) / "policy")
    assert model(**tokenizer("w1 w2", return_tensors="pt")).logits.isfinite().all()


def test_snapshots_of_steps_that_were_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of a history that was given up is none of the run's, until its step is trained again and it is replaced."""
    run_dir = make(tmp_path, ppo={"steps": 3}, engine={"checkpoint_every": 1, "keep_checkpoints": 2, "snapshot_every": 1})
    assert run_engine(run_dir, "train") == DONE
    assert kept(run_dir) == [(2, False), (3, False)], "without a metric none is best"
    (run_dir / "snapshots" / ".step-000009.part").mkdir()  # what a killed engine leaves
    original, recorded = Trainer.step, []

    def stepped(trainer: Trainer) -> StepRecord:
        recorded.append([snapshot.step for snapshot in RunReader(run_dir).snapshots()])
        return original(trainer)

    monkeypatch.setattr(Trainer, "step", stepped)
    assert run_engine(run_dir, "from-start") == DONE
    assert recorded == [[], [1], [1, 2]]
    assert sorted(path.name for path in (run_dir / "snapshots").iterdir()) == ["step-000001", "step-000002", "step-000003"]


def test_a_full_disk_leaves_no_half_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = make(tmp_path, ppo={"steps": 2}, engine={"snapshot_every": 1})

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ppo, "save_snapshot", full)
    assert run_engine(run_dir, "train") == FAILED
    assert RunReader(run_dir).snapshots() == [] and RunReader(run_dir).status().step == 1


def test_they_are_counted_in_the_estimate_of_the_disk() -> None:
    """A checkpoint has three float32 numbers for each weight that learns, a snapshot one."""
    weights = 1_000_000
    facts = ModelFacts(None, "GPT2LMHeadModel", parameters=weights)

    def estimate(**engine: Any) -> int:
        return disk_bytes(RunConfig.model_validate({"ppo": {"steps": 60}, "engine": {"checkpoint_every": 10, **engine}}), facts)

    plain = estimate(keep_checkpoints=2)
    assert estimate(keep_checkpoints=2, keep_best="objective/scores") - plain == 12 * weights
    assert estimate(keep_checkpoints=2, snapshot_every=7) - plain == 8 * 4 * weights
    assert estimate(keep_checkpoints=6, keep_best="objective/scores") == estimate(keep_checkpoints=6), "there are no more to keep"
