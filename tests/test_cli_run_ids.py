"""A run of the workspace is named by its id alone wherever the command line takes a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli import fork as commands
from rlhf_studio.cli.evaluate import evaluation_of
from rlhf_studio.cli.main import build_parser, main, split_overrides
from rlhf_studio.cli.options import configuration_of
from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.stages.reward_model import finish
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.inputs.relative_paths import run_in_full
from rlhf_studio.inputs.trained import RUN_ID, model_of_run
from rlhf_studio.runs.evaluation.policies import run_named
from rlhf_studio.runs.paths import new_run_id
from tests.runs.test_evaluation_policies import run_with

ONE = "20261121-025433-k3f9xa"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With one run, and the folder of this process beside it."""
    run_with(tmp_path / "work" / "runs" / ONE, checkpoints=(3,))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("RLHF_STUDIO_WORKSPACE", str(tmp_path / "work"))
    return tmp_path / "work"


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[StageConfig]:
    """The settings that a fork or a sweep would have checked; then it stops."""
    calls: list[StageConfig] = []

    def stop(config: StageConfig, *arguments: Any) -> None:
        calls.append(config)
        raise ConfigError([Problem("", "seen")])

    monkeypatch.setattr(commands, "_checked", stop)
    return calls


def options(*arguments: str) -> Any:
    rest, overrides = split_overrides(list(arguments))
    parsed = build_parser().parse_args(rest)
    parsed.overrides = overrides
    return parsed


def test_in_the_settings_of_a_run_and_of_an_evaluation(workspace: Path) -> None:
    run = workspace / "runs" / ONE
    judged = evaluation_of(options("evaluate", ONE, "--judge", f"{ONE}@3", "--reference", ONE)).evaluation
    assert (judged.judge, judged.reference) == (f"{run.resolve()}@3", str(run.resolve()))
    names = ["--model.policy", f"{ONE}@3", "--model.reference", "gpt2", "--critic.model", f"org/{ONE}"]
    config = configuration_of(options("train", "--recipe", "world", *names))
    assert (config.model.policy, config.model.reference, config.critic.model) == (f"{run.resolve()}@3", "gpt2", f"org/{ONE}")
    Path(ONE).mkdir()  # what lies here comes first, as for policies
    assert evaluation_of(options("evaluate", "bundled/world-policy", "--judge", ONE)).evaluation.judge == ONE


def test_a_name_of_the_hub_is_no_run_of_that_name(workspace: Path) -> None:
    for name in ("gpt2", "my-run"):
        run_with(workspace / "runs" / name, checkpoints=(3,))
        assert [run_in_full(typed, workspace / "runs") for typed in (name, f"{name}@3")] == [name, f"{name}@3"]
    assert RUN_ID.fullmatch(new_run_id())


def test_in_what_a_fork_changes(workspace: Path, checked: list[StageConfig]) -> None:
    parent = run_with(workspace.parent / "parent")
    assert main(["fork", str(parent), "--model.reference", f"{ONE}@3"]) == BAD_INPUT
    assert [config.model.reference for config in checked] == [f"{workspace.resolve()}/runs/{ONE}@3"]


def test_in_an_ensemble(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[Path]] = []
    monkeypatch.setattr(finish, "gather_ensemble", lambda out, models: calls.append(models))
    model_folder = workspace / "runs" / ONE / "checkpoints" / "step-000003" / "reward_model"
    model_folder.mkdir()
    assert main(["ensemble", ONE, f"{ONE}@3", "--out", str(tmp_path / "all")]) == DONE
    assert calls == [[model_folder.resolve(), model_folder.resolve()]]


def test_a_sweep_looks_in_its_own_workspace(workspace: Path, tmp_path: Path, checked: list[StageConfig]) -> None:
    """Both where a setting is given and where it is varied."""
    other, there = "20261121-025433-aaaaaa", tmp_path / "other"
    run_with(there / "runs" / other)
    in_full = f"{there.resolve()}/runs/{other}"
    command = ["sweep", "--recipe", "world", "--workspace", str(there)]
    assert main([*command, "--model.reference", other, "--vary", "ppo.kl_coef=0,0.1"]) == BAD_INPUT
    assert main([*command, "--model.reference", ONE, "--vary", f"model.policy={other}@2,gpt2"]) == BAD_INPUT
    assert (checked[0].model.reference, checked[1].model.reference, checked[1].model.policy) == (in_full, ONE, f"{in_full}@2")


@pytest.mark.parametrize("name", ["x" * 300, "\0"])
def test_a_name_that_no_path_can_have_is_no_run(name: str, workspace: Path) -> None:
    assert run_in_full(name, workspace / "runs") == name
    assert model_of_run(name) is None and run_named(name, workspace / "runs") is None


def test_a_name_that_is_too_long_is_told(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--recipe", "world", "--model.policy", "x" * 300, "--run-dir", "new"]) == BAD_INPUT
    assert main(["evaluate", "x" * 300]) == BAD_INPUT
    assert "Traceback" not in capsys.readouterr().err
