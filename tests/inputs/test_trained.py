"""What a run has trained, named by its folder; what runs are made from, and what becomes of it since."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from rlhf_studio.config import EvaluationRunConfig, RunConfig, SFTRunConfig
from rlhf_studio.inputs.bundled import resolve
from rlhf_studio.inputs.provenance import hash_of, ingredients
from rlhf_studio.inputs.trained import model_of_run, run_of_model
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.lineage import EVENT, family, sources
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.runs.writer import RunWriter


def keep(run: Path, step: int, place: str = "checkpoints", kind: str = "policy", whole: bool = True) -> Path:
    folder = run / place / f"step-{step:06d}"
    (folder / kind).mkdir(parents=True)
    (folder / kind / "config.json").write_text("{}", encoding="utf-8")
    if whole:
        (folder / "manifest.json").write_text("{}", encoding="utf-8")
    return folder / kind


@pytest.fixture
def run(tmp_path: Path) -> Path:
    create_run(tmp_path / "run", RunConfig(), name="run", state="finished")
    return tmp_path / "run"


def test_a_run_stands_for_the_model_in_its_newest_whole_checkpoint(run: Path) -> None:
    assert model_of_run(str(run)) == run  # nothing is trained yet: loading it says so
    old, new = keep(run, 4), keep(run, 8)
    snapshot = keep(run, 9, "snapshots")
    keep(run, 12, whole=False)
    assert resolve(str(run)) == str(new)
    assert model_of_run(f"{run}@4") == old and model_of_run(f"{run}@9") == snapshot
    assert model_of_run(f"{run}@5") == run
    assert run_of_model(old) == (run, 4) and run_of_model(snapshot) == (run, 9)


def test_a_reward_model_is_found_too(run: Path) -> None:
    assert model_of_run(str(run)) == run
    assert resolve(str(run)) != (kept := keep(run, 3, kind="reward_model")) and model_of_run(str(run)) == kept


@pytest.mark.parametrize("name", ["gpt2", "bundled/world-policy", "a@3", "/nowhere", "/tmp@x"])
def test_other_names_are_no_runs(name: str) -> None:
    assert model_of_run(name) is None


def test_the_hash_is_that_of_the_files(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "a"}\n', encoding="utf-8")
    assert hash_of(data) == hashlib.sha256(hashlib.sha256(data.read_bytes()).digest()).hexdigest()
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}", encoding="utf-8")
    before = hash_of(model)
    (model / "README.md").write_text("text", encoding="utf-8")  # says nothing about the weights
    assert hash_of(model) == before
    (model / "model.safetensors").write_bytes(b"weights")
    assert hash_of(model) != before


def test_what_settings_name_is_found_with_the_run_that_trained_it(run: Path, tmp_path: Path) -> None:
    kept = keep(run, 4)
    (tmp_path / "data.jsonl").write_text("{}\n", encoding="utf-8")
    values = {"model": {"policy": "run"}, "data": {"source": "data.jsonl", "eval": "someone/a-dataset"}}
    found = {one.setting: one for one in ingredients(SFTRunConfig.model_validate(values), tmp_path)}
    assert list(found) == ["model.policy", "data.source", "data.eval"]
    policy = found["model.policy"]
    assert (policy.path, policy.run, policy.step, policy.kind) == (str(kept), "run", 4, "model") and len(policy.sha256) == 64
    assert found["data.source"].sha256 == hash_of(tmp_path / "data.jsonl")
    assert (found["data.eval"].path, found["data.eval"].sha256) == ("", "")


def test_an_evaluation_is_made_from_its_policies_its_judge_and_its_text(run: Path, tmp_path: Path) -> None:
    kept = keep(run, 4)
    for name in ("said.jsonl", "held.txt", "score.py"):
        (tmp_path / name).write_text("a\n", encoding="utf-8")
    policies = {"run@4": str(kept), "said": str(tmp_path / "said.jsonl"), "model@v2": "lab/model"}
    components = [{"kind": "ensemble", "models": "run@4, lab/judge"}, {"kind": "python", "file": "score.py"}]
    values = {
        "data": {"prompts": "lab/prompts"},
        "reward": {"components": components},
        "evaluation": {"reference": "run", "judge": "run@4", "text": "held.txt"},
    }
    found = ingredients(EvaluationRunConfig.model_validate(values), tmp_path, policies)
    assert [(one.setting, one.name, one.kind, one.path, one.run, one.step) for one in found[1:]] == [
        ("data.prompts", "lab/prompts", "data", "", "", None),
        ("reward.components.0", "run@4", "model", str(kept), "run", 4),
        ("reward.components.0", "lab/judge", "model", "", "", None),
        ("reward.components.1", "score.py", "code", str(tmp_path / "score.py"), "", None),
        ("evaluation.policies", "run@4", "model", str(kept), "run", 4),
        ("evaluation.policies", "said", "data", str(tmp_path / "said.jsonl"), "", None),
        ("evaluation.policies", "model@v2", "model", "", "", None),
        ("evaluation.reference", "run", "model", str(kept), "run", 4),
        ("evaluation.judge", "run@4", "model", str(kept), "run", 4),
        ("evaluation.text", "held.txt", "data", str(tmp_path / "held.txt"), "", None),
    ]
    assert all(len(one.sha256) == 64 for one in found if one.path)


def test_a_changed_or_lost_file_breaks_the_lineage_visibly(run: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.jsonl" for name in ("same", "changed", "gone")}
    for file in files.values():
        file.write_text("{}\n", encoding="utf-8")
    config = SFTRunConfig.model_validate({"data": {"source": str(files["changed"]), "eval": str(files["gone"])}})
    made = [asdict(one) for one in ingredients(config)]
    made.append({**made[1], "setting": "data.same", "name": "same", "path": str(files["same"])})
    with RunWriter(run) as writer:
        writer.event(EventRecord("info", EVENT, "Made from files.", {EVENT: made}))
    assert {one.standing for one in sources(RunReader(run), hash_of)} == {"as it was"}
    files["changed"].write_text('{"prompt": "new"}\n', encoding="utf-8")
    files["gone"].unlink()
    found = {one.setting: one for one in sources(RunReader(run), hash_of)}
    assert {setting: one.standing for setting, one in found.items()} == {
        "model.policy": "as it was",
        "data.source": "changed",
        "data.eval": "gone",
        "data.same": "as it was",
    }
    assert "has changed since the run began (data.source)" in found["data.source"].sentence
    assert json.dumps(made)  # what is kept is plain data


def test_the_family_of_a_run_is_oldest_first_and_ends_at_a_circle() -> None:
    made_from = {"ppo": ["sft", "judge"], "judge": ["sft", ""], "sft": [], "a": ["b"], "b": ["a"]}
    assert family("ppo", made_from) == ["sft", "judge"]
    assert family("a", made_from) == ["b"]
