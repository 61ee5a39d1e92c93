"""What a run has trained, named by its folder; what runs are made from, and what becomes of it since."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from rlhf_studio.config import EvaluationRunConfig, RunConfig, SFTRunConfig
from rlhf_studio.config.bundled import ASSETS, bundled_path
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.models.load_model import fetch
from rlhf_studio.inputs import trained
from rlhf_studio.inputs.models.files import ModelError, find_model, folder_files
from rlhf_studio.inputs.provenance import hash_of, ingredients
from rlhf_studio.inputs.trained import DamagedError, model_of_run, require_intact, resolve, run_of_model
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.lineage import EVENT, family, sources
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.runs.writer import RunWriter


def keep(run: Path, step: int, parent: str = "checkpoints", kind: str = "policy", complete: bool = True) -> Path:
    folder = run / parent / f"step-{step:06d}"
    (folder / kind).mkdir(parents=True)
    (folder / kind / "config.json").write_text("{}", encoding="utf-8")
    if complete:
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
    keep(run, 12, complete=False)
    assert resolve(str(run)) == str(new)
    assert model_of_run(f"{run}@4") == old and model_of_run(f"{run}@9") == snapshot
    assert model_of_run(f"{run}@5") == run
    assert run_of_model(old) == (run, 4) and run_of_model(snapshot) == (run, 9)


def test_a_reward_model_is_found_too(run: Path) -> None:
    assert model_of_run(str(run)) == run
    assert resolve(str(run)) != (model := keep(run, 3, kind="reward_model")) and model_of_run(str(run)) == model


@pytest.mark.parametrize("name", ["gpt2", "bundled/world-policy", "a@3", "/nowhere", "/tmp@x"])
def test_other_names_are_no_runs(name: str) -> None:
    assert model_of_run(name) is None


def written(run: Path, step: int, parent: str = "checkpoints", kind: str = "policy") -> Path:
    """A model with its manifest, as an engine leaves them."""
    folder = keep(run, step, parent, kind)
    (folder / "model.safetensors").write_bytes(b"weights" * 100)
    (folder.parent / "optimizer.safetensors").write_bytes(b"of the checkpoint, not of the model")
    files = sorted(path for path in folder.parent.rglob("*") if path.is_file() and path.name != "manifest.json")
    entries = {
        path.relative_to(folder.parent).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in files
    }
    (folder.parent / "manifest.json").write_text(json.dumps({"format": 1, "step": step, "files": entries}), encoding="utf-8")
    return folder


def flip(file: Path) -> None:
    """Change one bit; size and time of the file stay."""
    before, contents = file.stat(), bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 1
    file.write_bytes(bytes(contents))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def load(name: str) -> Path:
    return fetch(name, "main", lambda text, fraction: None, "model.policy")


@pytest.mark.parametrize(("parent", "kind"), [("checkpoints", "policy"), ("snapshots", "policy"), ("checkpoints", "reward_model")])
def test_a_damaged_model_of_a_run_is_not_loaded(run: Path, parent: str, kind: str) -> None:
    folder = written(run, 4, parent, kind)
    flip(folder / "model.safetensors")
    folder_files("a", folder)  # every size is right: what looks at names and sizes alone finds nothing
    damaged = f"step-000004: {kind}/model.safetensors is damaged: its SHA-256 hash is not the one that it was written with"
    for name in (f"{run}@4", str(folder)):
        with pytest.raises(ConfigError) as caught:
            load(name)
        assert str(caught.value.problems[0].message) == f"cannot load {name}: {damaged}; {run} has kept no other step that could be named"
    other = written(run, 8, parent, kind)
    with pytest.raises(ConfigError, match=f"{damaged}; name another step, such as {run}@8"):
        load(f"{run}@4")
    assert load(f"{run}@8") == other


def test_links_to_another_disk_and_to_a_model_are_followed(run: Path, tmp_path: Path) -> None:
    folder = written(run, 4)
    (run / "checkpoints").rename(tmp_path / "disk")
    (run / "checkpoints").symlink_to(tmp_path / "disk")
    (tmp_path / "mine").symlink_to(folder)
    assert load(f"{run}@4") == folder
    flip(folder / "model.safetensors")
    with pytest.raises(ConfigError, match="step-000004: policy/model.safetensors is damaged"):
        load(f"{run}@4")
    (run / "checkpoints").unlink()
    (tmp_path / "disk").rename(run / "checkpoints")
    with pytest.raises(ConfigError, match="step-000004: policy/model.safetensors is damaged"):
        load(str(tmp_path / "mine"))


def test_preflight_sees_what_sizes_tell(run: Path) -> None:
    folder = written(run, 4)
    assert find_model(f"{run}@4").folder == folder
    (folder / "model.safetensors").write_bytes(b"short")
    with pytest.raises(
        ModelError, match=f"^{run}@4 cannot be used: step-000004: policy/model.safetensors is damaged: it has 5 bytes, and "
    ):
        find_model(f"{run}@4")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="policy/model.safetensors is missing; "):
        find_model(str(folder))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"files": {}}', '{"files": {"policy/a": 1}}', '{"files": {"policy/../../a": {"bytes": 1}}}', "[" * 9_999]
)
def test_a_manifest_that_says_nothing_is_told(run: Path, text: str) -> None:
    folder = written(run, 4)
    (folder.parent / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(DamagedError, match=r"^step-000004: manifest\.json is damaged; "):
        require_intact(folder, read=False)
    (folder.parent / "manifest.json").unlink()
    with pytest.raises(DamagedError, match=r"manifest\.json is missing, so nothing says whether its files are whole"):
        require_intact(folder, read=True)


def test_files_are_read_once_and_those_of_nobody_never(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = written(run, 4), []
    opened = trained.open_regular
    monkeypatch.setattr(trained, "open_regular", lambda path, **how: read.append(str(path)) or opened(path, **how))
    for _ in range(2):
        require_intact(folder, read=True)
    assert read == [str(folder / "config.json"), str(folder / "model.safetensors")]
    (folder / "model.safetensors").write_bytes(b"Weights" * 100)  # touched: read again
    with pytest.raises(DamagedError):
        require_intact(folder, read=True)
    (tmp_path / "model").mkdir()
    require_intact(tmp_path / "model", read=True)  # of other folders nothing is known
    (folder.parent / "optimizer.safetensors").unlink()
    (folder / "model.safetensors").write_bytes(b"weights" * 100)
    require_intact(folder, read=True)  # what the model does not need may be missing


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
    model = keep(run, 4)
    (tmp_path / "data.jsonl").write_text("{}\n", encoding="utf-8")
    values = {"model": {"policy": "run"}, "data": {"source": "data.jsonl", "eval": "someone/a-dataset"}}
    by_setting = {ingredient.setting: ingredient for ingredient in ingredients(SFTRunConfig.model_validate(values), tmp_path)}
    assert list(by_setting) == ["model.policy", "data.source", "data.eval"]
    policy = by_setting["model.policy"]
    assert (policy.path, policy.run, policy.step, policy.kind) == (str(model), "run", 4, "model") and len(policy.sha256) == 64
    assert by_setting["data.source"].sha256 == hash_of(tmp_path / "data.jsonl")
    assert (by_setting["data.eval"].path, by_setting["data.eval"].sha256) == ("", "")


def test_an_evaluation_is_made_from_its_policies_its_judge_and_its_text(run: Path, tmp_path: Path) -> None:
    model = keep(run, 4)
    for name in ("said.jsonl", "held.txt", "score.py"):
        (tmp_path / name).write_text("a\n", encoding="utf-8")
    policies = {"run@4": str(model), "said": str(tmp_path / "said.jsonl"), "model@v2": "lab/model"}
    components = [{"kind": "ensemble", "models": "run@4, lab/judge"}, {"kind": "python", "file": "score.py"}]
    values = {
        "data": {"prompts": "lab/prompts"},
        "reward": {"components": components},
        "evaluation": {"reference": "run", "judge": "run@4", "text": "held.txt"},
    }
    parts = ingredients(EvaluationRunConfig.model_validate(values), tmp_path, policies)
    assert [(part.setting, part.name, part.kind, part.path, part.run, part.step) for part in parts[1:]] == [
        ("data.prompts", "lab/prompts", "data", "", "", None),
        ("reward.components.0", "run@4", "model", str(model), "run", 4),
        ("reward.components.0", "lab/judge", "model", "", "", None),
        ("reward.components.1", "score.py", "code", str(tmp_path / "score.py"), "", None),
        ("evaluation.policies", "run@4", "model", str(model), "run", 4),
        ("evaluation.policies", "said", "data", str(tmp_path / "said.jsonl"), "", None),
        ("evaluation.policies", "model@v2", "model", "", "", None),
        ("evaluation.reference", "run", "model", str(model), "run", 4),
        ("evaluation.judge", "run@4", "model", str(model), "run", 4),
        ("evaluation.text", "held.txt", "data", str(tmp_path / "held.txt"), "", None),
    ]
    assert all(len(part.sha256) == 64 for part in parts if part.path)


def test_a_changed_or_lost_file_breaks_the_lineage_visibly(run: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.jsonl" for name in ("same", "changed", "gone")}
    for file in files.values():
        file.write_text("{}\n", encoding="utf-8")
    config = SFTRunConfig.model_validate({"data": {"source": str(files["changed"]), "eval": str(files["gone"])}})
    made = [asdict(part) for part in ingredients(config)]
    made.append({**made[1], "setting": "data.same", "name": "same", "path": str(files["same"])})
    with RunWriter(run) as writer:
        writer.event(EventRecord("info", EVENT, "Made from files.", {EVENT: made}))
    assert {part.standing for part in sources(RunReader(run), hash_of, bundled_path)} == {"as it was"}
    files["changed"].write_text('{"prompt": "new"}\n', encoding="utf-8")
    files["gone"].unlink()
    by_setting = {part.setting: part for part in sources(RunReader(run), hash_of, bundled_path)}
    assert {setting: part.standing for setting, part in by_setting.items()} == {
        "model.policy": "as it was",
        "data.source": "changed",
        "data.eval": "gone",
        "data.same": "as it was",
    }
    assert "has changed since the run began (data.source)" in by_setting["data.source"].sentence
    assert json.dumps(made)  # what is kept is plain data


def test_what_ships_with_the_project_is_found_in_another_installation(run: Path) -> None:
    """By its bundled name, also where an earlier version recorded the path, and where a policy of an evaluation has a name of its own."""
    values = {"model": {"policy": "bundled/world-policy"}, "data": {"prompts": "bundled/world-prompts"}}
    config = EvaluationRunConfig.model_validate(values)
    made = [asdict(part) for part in ingredients(config, policies={"mine": "bundled/world-policy"})]
    assert {part["path"] for part in made if part["setting"] != "reward.components.0"} == {"bundled/world-policy", "bundled/world-prompts"}
    earlier = {**made[0], "setting": "earlier", "path": "/opt/old/assets/world/policy"}
    with RunWriter(run) as writer:
        writer.event(EventRecord("info", EVENT, "Made from files.", {EVENT: [*made, earlier]}))
    parts = sources(RunReader(run), hash_of, bundled_path)
    assert {part.standing for part in parts} == {"as it was"} and len(parts) == len(made) + 1
    assert parts[-1].path == str(ASSETS / "world" / "policy")
    changed = sources(RunReader(run), lambda path: "another", bundled_path)
    assert {part.standing for part in changed} == {"changed"}


def test_the_family_of_a_run_is_oldest_first_and_ends_at_a_circle() -> None:
    made_from = {"ppo": ["sft", "judge"], "judge": ["sft", ""], "sft": [], "a": ["b"], "b": ["a"]}
    assert family("ppo", made_from) == ["sft", "judge"]
    assert family("a", made_from) == ["b"]
