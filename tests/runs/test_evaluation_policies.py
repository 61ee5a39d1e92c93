"""Which policies the lines of an evaluation name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.config.io import ConfigError, parse_config
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.evaluation.policies import PolicySource, source_at, sources_of
from rlhf_studio.runs.paths import MANIFEST, checkpoint_dir, snapshot_dir
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import new_run


def run_with(folder: Path, checkpoints: tuple[int, ...] = (2, 4), snapshots: tuple[int, ...] = (1, 2)) -> Path:
    """A run of four steps with kept policies that hold nothing but a manifest."""
    run = new_run(folder)
    with RunWriter(run) as writer:
        for step in range(1, 5):
            writer.commit_step(StepRecord(step, {}, []))
    for step, folder in [
        *((step, checkpoint_dir(run, step)) for step in checkpoints),
        *((step, snapshot_dir(run, step)) for step in snapshots),
    ]:
        folder.mkdir(parents=True)
        manifest = {"format": 1, "step": step, "recorded_at": RunReader(run).recorded_at(step), "files": {"state.json": {}}}
        (folder / MANIFEST).write_text(json.dumps(manifest))
    return run


def named(*lines: str, runs: Path | None = None) -> list[PolicySource]:
    return sources_of(EvaluationRunConfig.model_validate({"evaluation": {"policies": "\n".join(lines)}}), runs)


def test_nothing_named_is_the_policy_model() -> None:
    assert named() == [PolicySource("world-policy", "model", "bundled/world-policy")]


def test_the_policies_of_a_run(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run")
    newest = named(str(run))
    assert [(source.name, source.step, source.path) for source in newest] == [("a run@4", 4, str(checkpoint_dir(run, 4) / "policy"))]
    everything = named(f"{run}@all")
    assert [source.name for source in everything] == ["a run@start", "a run@1", "a run@2", "a run@4"]
    assert everything[0].path == "bundled/world-policy" and everything[1].checkpoint == str(snapshot_dir(run, 1))
    assert named(f"{run}@2", f"{run}@start", f"{run}@2") == [everything[2], everything[0]]  # each once, in the order named
    assert named("run@1", runs=tmp_path)[0] == everything[1]
    assert source_at(str(snapshot_dir(run, 1))) == everything[1]


def with_policies(folder: Path, settings: dict[str, Any]) -> Path:
    """A run of any stage with policies of steps 2 and 4, which hold nothing."""
    create_run(folder, parse_config(settings), name=folder.name)
    with RunWriter(folder) as writer:
        for step in range(1, 5):
            writer.commit_step(StepRecord(step, {}, []))
    for step in (2, 4):
        checkpoint = checkpoint_dir(folder, step)
        (checkpoint / "policy").mkdir(parents=True)
        manifest = {"format": 1, "step": step, "recorded_at": RunReader(folder).recorded_at(step), "files": {"state.json": {}}}
        (checkpoint / MANIFEST).write_text(json.dumps(manifest))
    return folder


def test_a_run_that_began_with_random_weights_has_no_start(tmp_path: Path) -> None:
    run = with_policies(tmp_path / "sft", {"stage": "sft", "model": {"fresh": True}})
    assert [source.step for source in named(f"{run}@all")] == [2, 4]
    with pytest.raises(ConfigError, match="sft began with random weights, which say nothing; name a policy that it kept: sft@2, sft@4"):
        named(f"{run}@start")
    create_run(tmp_path / "new", parse_config({"stage": "sft", "model": {"fresh": True}}), name="new")
    for line in ("new", "new@all"):
        with pytest.raises(ConfigError, match="new has no checkpoint yet, and it began with random weights; let it go on first"):
            named(line, runs=tmp_path)


def test_a_start_that_another_run_has_trained_is_found_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with_policies(Path("sft"), {"stage": "sft", "model": {"fresh": True}})
    with_policies(Path("ppo"), {"stage": "ppo", "model": {"policy": "sft@4"}})
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert named(f"{tmp_path}/ppo@start")[0].path == f"{tmp_path}/sft@4"


def test_runs_of_one_name_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    first, second = run_with(tmp_path / "first"), run_with(tmp_path / "second")
    assert [source.name for source in named(str(first), str(second), "bundled/world-policy")] == ["first@4", "second@4", "world-policy"]


def test_models_hub_ids_and_files(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "theirs.jsonl").write_text("")
    sources = named(str(tmp_path / "model"), "org/model@v2", str(tmp_path / "theirs.jsonl"), "other/model")
    assert [(source.name, source.kind, source.revision) for source in sources] == [
        ("model", "model", "main"),
        ("model@v2", "model", "v2"),
        ("theirs", "completions", "main"),
        ("model 2", "model", "main"),
    ]


NOWHERE = [
    ("RUN@3", "run has no checkpoint or snapshot of step 3; it has: 1, 2, 4"),
    ("RUN@last", "'last' is no step of run: write @STEP, @all or @start"),
    ("EMPTY", "empty has no checkpoint yet; empty@start is the policy that it began with"),
    ("nothing@start", "there is no run 'nothing': name its folder"),
    ("FOLDER@start", "is no run, so it has no start; name the folder of a run"),
    ("nothing.jsonl", "there is no file 'nothing.jsonl'"),
]


def test_lines_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    run, empty = run_with(tmp_path / "run"), new_run(tmp_path / "empty")
    for line, message in NOWHERE:
        with pytest.raises(ConfigError, match=message):
            named(line.replace("RUN", str(run)).replace("EMPTY", str(empty)).replace("FOLDER", str(tmp_path)))


def test_all_wrong_lines_are_said_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        named("a@all", "b.jsonl")
    assert len(error.value.problems) == 2


def test_one_policy_is_wanted(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run")
    with pytest.raises(ConfigError, match="names 4 policies; name one"):
        source_at(f"{run}@all")
    (tmp_path / "theirs.jsonl").write_text("")
    with pytest.raises(ConfigError, match="is a file of completions"):
        source_at(str(tmp_path / "theirs.jsonl"))
