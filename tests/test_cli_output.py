"""What the command line prints and where: the log of a run, closed pipes, one helpful line."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, apply_overrides, config_from_yaml, config_to_yaml, parse_config
from rlhf_studio.engine.loop import build
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process import worker
from rlhf_studio.engine.process.console import Console
from rlhf_studio.engine.process.screen import Screen, output_in_log
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.engine.conftest import small_config
from tests.runs.store_helpers import call

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(config_to_yaml(small_config(tmp_path)), encoding="utf-8")
    return path


# --- engine.log ----------------------------------------------------------------------------------------------------------------


def test_a_run_from_the_command_line_has_a_log(
    settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is for people is in both places; what libraries and children say is in the log alone."""
    original = Trainer.step

    def noisy(trainer: Trainer) -> Any:
        print("a library warns", file=sys.stderr)
        subprocess.run(["sh", "-c", "echo a child speaks"], check=True)
        return original(trainer)

    monkeypatch.setattr(Trainer, "step", noisy)
    assert main(["train", "--config", str(settings), "--run-dir", str(tmp_path / "run")]) == 0
    output, log = capsys.readouterr(), RunReader(tmp_path / "run").log_tail()
    for line in ("step 1/2", "step 2/2", "done:"):
        assert line in output.out and line in log
    assert "a child speaks" in log and "a child speaks" not in output.out
    assert "a library warns" in log and "a library" not in output.out + output.err


def test_the_trace_of_an_unexpected_error_is_in_both_places(
    settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(trainer: Trainer) -> Any:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(Trainer, "step", explode)
    assert main(["train", "--config", str(settings), "--run-dir", str(tmp_path / "run")]) == 1
    for text in (capsys.readouterr().out, RunReader(tmp_path / "run").log_tail()):
        assert "Traceback (most recent call last)" in text and "failed: ZeroDivisionError: surprise" in text


def test_output_of_the_process_itself_goes_to_the_log(tmp_path: Path) -> None:
    """In a process of its own, with real descriptors: printing, C code and children; and back to the terminal afterwards."""
    create_run(tmp_path / "run", RunConfig(), name="run")
    code = """
import os, sys
from pathlib import Path
from rlhf_studio.engine.process.console import Console
from rlhf_studio.engine.process.screen import output_in_log
with output_in_log(Path(sys.argv[1])) as screen:
    print("python"); os.write(2, b"c code\\n"); os.system("echo child")
    Console(3, screen).say("for people")
print("after")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("for people\nafter\n", "")
    assert sorted((tmp_path / "run" / "engine.log").read_text().split("\n")) == ["", "c code", "child", "for people", "python"]


def test_an_output_that_is_the_log_already_stays(tmp_path: Path) -> None:
    """As in an engine that the app started: nothing is said twice."""
    create_run(tmp_path / "run", RunConfig(), name="run")
    code = "import sys; from pathlib import Path; from rlhf_studio.engine.process.screen import output_in_log\n"
    code += "with output_in_log(Path(sys.argv[1])) as screen: print(screen)"
    with open(tmp_path / "run" / "engine.log", "a") as log:
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], cwd=ROOT, stdout=log, stderr=log, check=True)
    assert (tmp_path / "run" / "engine.log").read_text() == "None\n"


def test_a_terminal_that_is_gone_does_not_end_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    ends = os.pipe()
    os.close(ends[0])
    with os.fdopen(ends[1], "w", buffering=1) as closed:
        console = Console(3, Screen(closed, closed))
        console.say("first")
        console.say("second")
        assert capsys.readouterr().out == "first\nsecond\n"  # the log
        os.dup2(os.open(os.devnull, os.O_WRONLY), closed.fileno())


def test_an_error_at_the_door_is_in_the_log_too(settings: Path, tmp_path: Path) -> None:
    create_run(tmp_path / "run", RunConfig(), name="run")
    with pytest.raises(ConfigError), output_in_log(tmp_path / "run"):
        raise ConfigError([])
    assert "ConfigError" in RunReader(tmp_path / "run").log_tail()


# --- one line that helps -------------------------------------------------------------------------------------------------------


def test_settings_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--ppo.steps", "5", "--name", "my run"]) == 2
    line = "rlhf-studio: settings change a recipe or a file, so name one too, for example: "
    assert capsys.readouterr().err == f"{line}train --recipe world --ppo.steps 5 --name 'my run'\n"


def test_null_clears_what_may_be_empty() -> None:
    base = parse_config({"model": {"reference": "some/model"}, "data": {"reference_column": "answer"}, "name": "a"})
    given = {"model.reference": "null", "data.reference_column": "null", "name": "null", "reward.components.0.name": "null"}
    cleared = parse_config(apply_overrides(base.model_dump(mode="json"), given))
    assert (cleared.model.reference, cleared.data.reference_column, cleared.name) == ("", "", "")
    assert cleared.reward.components[0].name == ""
    assert parse_config(apply_overrides(base.model_dump(mode="json"), {"name": '"null"'})).name == "null"  # the word itself
    assert config_from_yaml("model: {reference: null}\ndata: {system_text: }").model.reference == ""
    with pytest.raises(ConfigError, match="ppo.kl_coef: input should be a number"):
        parse_config(apply_overrides(base.model_dump(mode="json"), {"ppo.kl_coef": "null"}))
    with pytest.raises(ConfigError, match="model.policy: input should be"):
        config_from_yaml("model: {policy: null}")
    assert parse_config(apply_overrides(base.model_dump(mode="json"), {"data.column": "null"})).data.column == "null"


def test_a_closed_pipe_is_no_error(settings: Path, tmp_path: Path) -> None:
    create_run(tmp_path / "run", RunConfig(), name="run")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "rlhf_studio", "runs", "show", str(tmp_path / "run"), "--json"]
        done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_permission_of_a_function_is_asked_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the door of a prepared folder, and in the engine, where the app's runs come in."""
    (tmp_path / "mine.py").write_text("def score(prompts, responses): return [0.0] * len(responses)")
    reward = {"components": [{"kind": "python", "file": str(tmp_path / "mine.py"), "function": "score"}]}
    create_run(tmp_path / "run", small_config(tmp_path, reward=reward), name="run", state="loading")
    monkeypatch.setattr(worker, "choose_compute", lambda config: pytest.fail("the machine was looked at"))
    monkeypatch.setattr(build, "load_causal_lm", lambda *arguments: pytest.fail("the model was loaded"))
    for command in ("train", "resume"):
        assert main([command, str(tmp_path / "run")]) == 2
        assert "reward.components.0.file" in (message := capsys.readouterr().err) and "--allow-custom-rewards" in message
        assert not (tmp_path / "run" / "engine.log").exists()
    assert worker.run_engine(tmp_path / "run", "train") == 2
    assert RunReader(tmp_path / "run").status().cause.startswith("reward.components.0.file:")


def test_half_a_surrogate_pair_is_printed_as_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_run(tmp_path / "run", RunConfig(), name="half")
    call(tmp_path / "run", "half \ud800")
    with RunWriter(tmp_path / "run") as writer:
        writer.commit_step(StepRecord(1, {"odd \udfff": 1.0}, []))
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    out.flush()
    output = out.buffer.getvalue().decode("utf-8")
    assert "half ⟨U+D800⟩ (run)" in output and "odd ⟨U+DFFF⟩" in output
