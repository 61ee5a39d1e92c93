"""The command line as people use it: exit codes, one line per bad setting, the same run from every way in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import GenerationConfig
from rlhf_studio.config.io import config_to_yaml
from rlhf_studio.engine.process import control
from rlhf_studio.inputs.checks.policy import sampling_warning
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A YAML file of a very small run."""
    path = tmp_path / "run.yaml"
    path.write_text(config_to_yaml(small_config(tmp_path)), encoding="utf-8")
    return path


def test_train_show_resume_stop(settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    assert main(["train", "--config", str(settings), "--run-dir", str(run_dir), "--ppo.steps", "3", "--ppo.kl_coef=0.2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"run folder: {run_dir}"
    assert "The page does not show it" in lines[1] and "RLHF_STUDIO_WORKSPACE" in lines[1]
    assert any(line.startswith("step 3/3") for line in lines)
    config = RunReader(run_dir).config()
    assert (config.ppo.steps, config.ppo.kl_coef) == (3, 0.2)

    assert main(["runs", "show", str(run_dir), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["state"], values["step"], values["total_steps"], values["cause"]) == ("finished", 3, 3, "")
    assert values["metrics"]["objective/kl_coef"] == 0.2
    assert [checkpoint["step"] for checkpoint in values["checkpoints"]] == [3]

    assert main(["runs", "show", str(run_dir)]) == 0
    assert "state        finished" in capsys.readouterr().out
    assert main(["resume", str(run_dir)]) == 0  # nothing left to do
    assert main(["stop", str(run_dir)]) == 2
    assert "is not running" in capsys.readouterr().err


def test_a_run_stops_when_its_time_is_over_and_goes_on_for_as_long_again(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock goes on by 25 seconds before each step: after the second step 75 seconds are over."""
    clock, own = [0.0], control.Control.before_step

    def before_step(self: control.Control) -> None:
        clock[0] += 25
        own(self)

    monkeypatch.setattr(control, "monotonic", lambda: clock[0])
    monkeypatch.setattr(control.Control, "before_step", before_step)
    run_dir = tmp_path / "run"
    assert main(["train", "--config", str(settings), "--run-dir", str(run_dir), "--ppo.steps", "5", "--engine.max_minutes", "1"]) == 3
    status = RunReader(run_dir).status()
    assert (status.state, status.step, [point.step for point in RunReader(run_dir).checkpoints()]) == ("stopped", 2, [2])
    assert "the time limit of 1 minute is over (engine.max_minutes)" in capsys.readouterr().out
    assert main(["runs", "show", str(run_dir)]) == 0
    assert "state        stopped: The time limit of 1 minute is over (engine.max_minutes)." in capsys.readouterr().out
    assert main(["resume", str(run_dir)]) == 3 and RunReader(run_dir).status().step == 4
    assert main(["resume", str(run_dir), "--engine.max_minutes", "0"]) == 0 and RunReader(run_dir).status().state == "finished"


def test_settings_that_are_wrong_start_nothing(settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    start = ["train", "--config", str(settings), "--run-dir", str(run_dir)]
    for extra, part in (
        (["--ppo.kl_coef", "nan"], "ppo.kl_coef: input should be a number, not 'nan'"),
        (["--ppo.kl_coef", ".nan"], "ppo.kl_coef: input should be a finite number"),
        (["--ppo.steps", "many"], "ppo.steps: input should be a whole number"),
        (["--ppo.batch_size", "2"], "ppo.mini_batch_size: 4 is larger than batch_size 2"),
        (["--ppo.nothing", "2"], "ppo.nothing: there is no such setting"),
        (["--ppo.step", "2"], "ppo.step: there is no such setting; did you mean ppo.steps?"),
        (["--ppo.steps"], "ppo.steps: needs a value"),
        (["--fast"], "unrecognized arguments: --fast"),
        (["--recipe", "world"], "not both"),
        (["--model.policy", str(tmp_path / "none")], "model.policy:"),
        (["--data.prompts", str(tmp_path / "none.txt")], "data.prompts:"),
    ):
        assert main([*start, *extra]) == 2, extra
        assert part in capsys.readouterr().err
        assert not run_dir.exists()


def test_a_settings_file_goes_behind_config(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("train", "plan", "try"):
        assert main([command, str(settings), "--ppo.steps", "2"]) == 2
        assert f"behind --config: --config {settings}\n" in capsys.readouterr().err


def test_what_only_loading_finds_leaves_no_run_folder(settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that another program prepared keeps its folder, with the cause."""
    run_dir = tmp_path / "run"
    following = ["--lora.enabled", "true", "--lora.use_dora", "true", "--ppo.reference_ema", "0.5"]
    assert main(["train", "--config", str(settings), "--run-dir", str(run_dir), *following]) == 2
    output = capsys.readouterr()
    assert output.out.count("a reference that follows needs plain LoRA") == 1 and "Traceback" not in output.err
    assert f"nothing was trained: {run_dir} was removed again" in output.out
    assert not run_dir.exists()

    changed = {"lora": {"enabled": True, "use_dora": True}, "ppo": {"reference_ema": 0.5}}
    create_run(run_dir, small_config(tmp_path, **changed), name="prepared", state="queued")
    assert main(["train", str(run_dir)]) == 2
    assert "a reference that follows needs plain LoRA" in RunReader(run_dir).status().cause


def test_sampling_that_is_cut_off_is_a_warning(settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["train", "--config", str(settings), "--run-dir", str(tmp_path / "run"), "--ppo.steps", "1"]
    assert main([*start, "--generation.top_k", "5", "--generation.top_p", "0.9"]) == 0
    assert "warning: Sampling is cut off: top-k 5 and top-p 0.9." in capsys.readouterr().err
    text = "Sampling is cut off (top-k 5 and top-p 0.9)"
    events = [event for event in RunReader(tmp_path / "run").events_since(0) if event.text.startswith(text)]
    assert [event.level for event in events] == ["warning"]
    assert sampling_warning(GenerationConfig()) is None
    assert "(top-p 0.5)" in str(sampling_warning(GenerationConfig(top_p=0.5)))


def test_other_bad_input(settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments, part in (
        (["train"], "give --recipe NAME"),
        (["train", "--recipe", "no-such-recipe"], "no-such-recipe"),
        (["train", str(tmp_path / "full"), "--recipe", "world"], "brings its own settings"),
        (["train", str(tmp_path / "empty")], "empty"),
        (["train", "--config", str(settings), "--run-dir", str(tmp_path / "full")], "--run-dir"),
        (["runs", "show", str(tmp_path / "full")], "full"),
        (["runs", "list", "--ppo.steps", "3"], "takes no settings"),
        (["resume", str(tmp_path / "none")], f"rlhf-studio: There is no run at {tmp_path / 'none'}: config.yaml is missing.\n"),
        (["stop", str(tmp_path / "none")], "not running"),
        (["recipes", "show", "no-such-recipe"], "no-such-recipe"),
    ):
        assert main(arguments) == 2, arguments
        assert part in capsys.readouterr().err


def test_lists(tmp_path: Path, settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "list", "--workspace", str(tmp_path / "workspace")]) == 0
    assert "No runs in" in capsys.readouterr().out
    create_run(tmp_path / "workspace" / "runs" / "first-run", small_config(tmp_path), name="first", state="finished")
    assert main(["runs", "list", "--workspace", str(tmp_path / "workspace")]) == 0
    assert "finished" in capsys.readouterr().out
    assert main(["runs", "list", "--workspace", str(tmp_path / "workspace"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["run_id"] == "first-run"
    assert main(["recipes", "list"]) == 0
    assert "world" in capsys.readouterr().out
    assert main(["recipes", "show", "world"]) == 0
    assert "kl_coef" in capsys.readouterr().out


@pytest.mark.long
def test_a_real_process_stops_on_sigterm_with_code_3(settings: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "rlhf_studio", "train", "--config", str(settings), "--run-dir", str(run_dir), "--ppo.steps", "100000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=Path(__file__).parents[1]
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 2/"):
                process.send_signal(signal.SIGTERM)
                break
        rest = process.stdout.read()
        assert process.wait() == 3, rest
    assert "resume" in rest
    status = RunReader(run_dir).status()
    assert status.state == "stopped"
    assert RunReader(run_dir).checkpoints()[-1].step == status.step
