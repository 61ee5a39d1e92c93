"""The command ``sweep``: what it queues, what it refuses, and the runs that it runs itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.cli import fork
from rlhf_studio.cli.main import main
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED
from rlhf_studio.runs.workspace import Workspace
from tests.runs.store_helpers import use_fake_engine

WORLD = ["sweep", "--recipe", "world", "--ppo.steps", "3"]


def test_runs_are_queued_for_the_app(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*WORLD, "--vary", "ppo.kl_coef=0,0.05", "--vary", "engine.device=cpu,auto", "--workspace", str(tmp_path)]
    assert main([*arguments, "--name", "betas"]) == DONE
    printed = capsys.readouterr().out
    workspace = Workspace(tmp_path)
    runs = sorted(workspace.runs(), key=lambda run: run.queue_position or 0)
    assert [run.name for run in runs] == [
        f"betas, KL coefficient {beta}, Device {device}" for beta in (0, 0.05) for device in ("cpu", "auto")
    ]
    configs = [workspace.reader(run.run_id).config() for run in runs]
    assert [(own.ppo.kl_coef, own.engine.device, own.ppo.steps) for own in configs] == [
        (0, "cpu", 3),
        (0, "auto", 3),
        (0.05, "cpu", 3),
        (0.05, "auto", 3),
    ]
    assert all(f"{run.run_id}  {run.name}" in printed for run in runs) and "4 runs are queued" in printed


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ([], "a sweep varies one or two settings, not 0"),
        (["ppo.kl_coef"], "--vary: write SETTING=VALUE,VALUE, for example ppo.kl_coef=0,0.1, not 'ppo.kl_coef'"),
        (["ppo.kl_coef=0,1", "ppo.kl_coef=2"], "--vary: ppo.kl_coef stands here twice"),
        (["ppo.kl_coef=0,x"], "ppo.kl_coef: "),
        (["model.policy=bundled/world-policy,no/such/model/here"], "model.policy: "),
    ],
)
def test_what_is_wrong_queues_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], vary: list[str], words: str) -> None:
    given = [part for axis in vary for part in ("--vary", axis)]
    assert main([*WORLD, *given, "--workspace", str(tmp_path / "workspace")]) == BAD_INPUT
    assert words in capsys.readouterr().err
    assert not (tmp_path / "workspace").exists()


@pytest.mark.parametrize(
    ("engine", "code", "words"),
    [
        ("train", DONE, "finished at step 3 of 3"),
        pytest.param("unborn", FAILED, "failed at step 0 of 3: The engine", marks=pytest.mark.long),
    ],
)
def test_runs_are_run_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, engine: str, code: int, words: str
) -> None:
    use_fake_engine(monkeypatch, engine)
    monkeypatch.setattr(fork, "POLL_SECONDS", 0.01)
    assert main([*WORLD, "--vary", "engine.seed=0,1", "--workspace", str(tmp_path), "--run"]) == code
    assert capsys.readouterr().out.count(words) == 2
    assert all(run.state == ("finished" if code == DONE else "failed") for run in Workspace(tmp_path).runs())
