"""Relative paths of a run that works in another folder than this process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import REWARD_KINDS, STAGES, EvaluationRunConfig, RunConfig, names_in
from rlhf_studio.config.io import walk_fields, with_values
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.inputs.relative_paths import as_seen_from, as_typed_here, pinned

NO_PATHS = {"data.eval_split"}  # it is of a folder, and names none
KINDS = ("reward_model", "ensemble", "python")


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the run works in; this process works in another one beside it."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "there"


def test_every_setting_that_may_name_a_file_is_looked_for_in_the_folder_of_the_run(there: Path) -> None:
    """Which settings these are is read from their titles and help, so that a new one is not forgotten."""
    (there / "mine").write_text("")
    texts = {name: f"{field.title} {field.description}" for name, field in walk_fields() if field.annotation is str}
    named = [name for name, text in texts.items() if re.search(r"\b(file|folder)\b", text) and name not in NO_PATHS]
    assert {"model.policy", "data.prompts", "engine.accelerate_config"} <= set(named)
    for stage, kind in STAGES.items():  # what a field's own definition says, and what people read of it
        texts = {name: f"{field.title} {field.description}" for name, field in walk_fields(kind) if field.annotation is str}
        marked = {f"{section}.{name}" for section in kind.sections for name in names_in(type(getattr(kind(), section)))}
        assert {name for name, text in texts.items() if re.search(r"\b(file|folder)\b", text)} - NO_PATHS <= marked, stage
    config = as_seen_from(with_values(RunConfig(), {**dict.fromkeys(named, "mine"), "critic.kind": "separate"}), there)
    assert {name: value(config, name) for name in named} == dict.fromkeys(named, str(there / "mine"))
    kinds = {
        kind: [name for name, field in model.model_fields.items() if re.search(r"\b(file|folders?)\b", field.description or "")]
        for kind, model in REWARD_KINDS.items()
    }
    plain = {kind: names for kind, names in kinds.items() if any(REWARD_KINDS[kind].model_fields[name].annotation is str for name in names)}
    assert set(plain) == set(KINDS)


def value(config: RunConfig, name: str) -> Any:
    section, setting = name.split(".")
    return getattr(getattr(config, section), setting)


def test_models_and_files_of_rewards(there: Path) -> None:
    for name in ("one", "two", "score.py"):
        (there / name).write_text("")
    components = [
        {"kind": "reward_model", "model": "one"},
        {"kind": "ensemble", "models": "one,\nlab/some-model\ntwo", "name": "both"},
        {"kind": "python", "file": "score.py"},
        {"kind": "length"},
    ]
    first, both, own, length = as_seen_from(with_values(RunConfig(), {"reward.components": components}), there).reward.components
    assert first.model_names() == [str(there / "one")]
    assert both.model_names() == [str(there / "one"), "lab/some-model", str(there / "two")]
    assert own.files() == [str(there / "score.py")] and length.files() == []


def test_runs_are_pinned_to_their_newest_step(tmp_path: Path) -> None:
    for name, step in (("one", 7), ("two", 12)):
        checkpoint = tmp_path / name / "checkpoints" / f"step-{step:06d}"
        (checkpoint / "policy").mkdir(parents=True)
        (checkpoint / "manifest.json").touch()
        for file in ("run.db", "config.yaml"):
            (tmp_path / name / file).touch()
    two = tmp_path / "two"
    judges = {"kind": "ensemble", "models": f"one,{two},other/model"}
    values = {"model": {"policy": "one", "reference": f"{two}@3"}, "reward": {"components": [judges]}}
    config = pinned(RunConfig.model_validate(values), tmp_path)
    assert (config.model.policy, config.model.reference) == ("one@7", f"{two}@3")
    assert config.reward.components[0].model_dump()["models"] == f"one@7,{two}@12,other/model"
    lines = f"one\n{two}@all\n{two}\none@start\nfile.jsonl"
    compared = EvaluationRunConfig.model_validate({"stage": "evaluation", "evaluation": {"policies": lines, "judge": "two"}})
    result = pinned(compared, tmp_path).evaluation
    assert result.policies.splitlines() == ["one@7", f"{two}@all", f"{two}@12", "one@start", "file.jsonl"] and result.judge == "two@12"
    assert pinned(config, tmp_path) == config and pinned(RunConfig(), tmp_path) == RunConfig()


def test_policies_of_an_evaluation_line_by_line(there: Path) -> None:
    (there / "run").mkdir()
    (there / "said.jsonl").write_text("")
    evaluation = {"policies": "run@4\nrun@all\nsaid.jsonl\nlab/model@v2", "judge": "run@2"}
    chosen = as_seen_from(EvaluationRunConfig.model_validate({"evaluation": evaluation}), there).evaluation
    assert chosen.policies.splitlines() == [f"{there}/run@4", f"{there}/run@all", f"{there}/said.jsonl", "lab/model@v2"]
    assert chosen.judge == f"{there}/run@2"


@pytest.mark.parametrize("name", ["bundled/world-prompts", "lab/some-data", "/absolute/prompts.txt"])
def test_other_names_stay(name: str, there: Path) -> None:
    config = with_values(RunConfig(), {"data.prompts": name})
    assert as_seen_from(config, there) == config


def test_a_file_of_this_folder_is_not_taken_for_one_of_the_run(there: Path) -> None:
    Path("mine.txt").write_text("the film was\n")
    config = with_values(RunConfig(), {"data.prompts": "mine.txt"})
    assert as_seen_from(config, there).data.prompts == str(there / "mine.txt")
    assert as_seen_from(config, Path.cwd()) == config and as_seen_from(config, there / "gone") == config


def test_what_is_typed_here_is_meant_here_and_what_stays_is_the_runs(there: Path) -> None:
    for folder in (Path.cwd(), there):
        for name in ("old.txt", "new.txt", "old.py", "new.py"):
            (folder / name).write_text("")
    files = [{"kind": "python", "file": "old.py"}]
    before = with_values(RunConfig(), {"data.prompts": "old.txt", "data.eval": "old.txt", "reward.components": files})
    typed = {"data.prompts": "new.txt", "model.policy": "lab/model", "reward.components": [*files, {"kind": "python", "file": "new.py"}]}
    config = as_typed_here(with_values(before, typed), before, there)
    assert (config.data.prompts, config.data.eval, config.model.policy) == (str(Path.cwd() / "new.txt"), "old.txt", "lab/model")
    assert [component.file for component in config.reward.components] == ["old.py", str(Path.cwd() / "new.py")]
    assert as_typed_here(with_values(before, typed), before, Path.cwd()).data.prompts == "new.txt"


def test_the_check_before_a_start_looks_in_the_folder_of_the_run(there: Path, make_config: Any, tmp_path: Path) -> None:
    (there / "mine.txt").write_text("the film was\n" * 80)
    config = make_config(data__prompts="mine.txt")
    assert inspect_run(config, tmp_path, folder=there).prompts == 80
    assert [problem.field for problem in inspect_run(config, tmp_path).problems] == ["data.prompts"]
    (there / "mine.txt").rename("mine.txt")
    (problem,) = inspect_run(config, tmp_path, folder=there).problems
    assert problem.field == "data.prompts" and f"there is no file {there / 'mine.txt'}" in problem.message
