"""Runs by their id, and commands to paste: what the command line says without starting an engine."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.analysis.doctor.report import diagnosis_text
from rlhf_studio.analysis.records import Diagnosis, Finding, Verdict
from rlhf_studio.cli.main import build_parser, main, split_overrides
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.records import Origin
from tests.runs.store_helpers import config

RUN = "20261122-120000-abcdef"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLHF_STUDIO_WORKSPACE", str(tmp_path / "ws"))
    monkeypatch.chdir(tmp_path)
    create_run(tmp_path / "ws" / "runs" / RUN, config(), name="mine")
    return tmp_path / "ws"


@pytest.mark.parametrize(
    "words",
    ["runs show", "runs config", "doctor", "train", "resume", "fork", "stop", "generate --start --prompt x", "export --csv x.csv"],
)
def test_a_run_may_be_named_by_its_id_in_every_command(words: str, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []

    def parser() -> Any:
        made = build_parser()
        read = made.parse_args
        made.parse_args = lambda given: Namespace(**{**vars(read(given)), "run": lambda options: folders.append(options.folder) or DONE})
        return made

    monkeypatch.setattr("rlhf_studio.cli.main.build_parser", parser)
    (workspace.parent / "here").mkdir()
    for name in (RUN, "ws/nothing", "here"):
        assert main([*words.split(), name]) == DONE
    assert folders == [workspace / "runs" / RUN, Path("ws/nothing"), Path("here")], "a path stays as it is"


def test_a_name_that_is_no_run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "show", RUN]) == DONE and "mine" in capsys.readouterr().out
    assert main(["runs", "show", "first"]) == BAD_INPUT
    message = capsys.readouterr().err
    assert f"no folder 'first' here, and no run with this id in the workspace {workspace}" in message and "'runs list'" in message
    (workspace.parent / RUN).mkdir()  # a folder of that name is meant first
    assert main(["runs", "show", RUN]) == BAD_INPUT and "There is no run at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "fork_step", "saved", "at"),
    [("runs/a b", None, [2, 4], None), ("runs/a b", 3, [2, 4], "2"), ("runs/a b", 1, [0, 2], None)],
)
def test_what_the_doctor_would_try_is_a_command_to_paste(folder: str, fork_step: int | None, saved: list[int], at: str | None) -> None:
    finding = Finding(
        "kl", "warning", "t", 3, "r", [], "c", "a", {"ppo.kl_coef": 0.16, "lora.enabled": True, "ppo.target_kl": None}, fork_step
    )
    text = diagnosis_text(Diagnosis(4, Verdict("improved", "s", "r"), [finding]), folder, saved)
    (line,) = [line for line in text.splitlines() if line.startswith("  try ")]
    words = shlex.split(line.removeprefix("  try "))
    assert words[:3] == ["python", "-m", "rlhf_studio"]
    rest, settings = split_overrides(words[3:])
    options = build_parser().parse_args(rest)
    assert (options.command, str(options.folder), options.at) == ("fork", folder, at)
    assert settings == {"ppo.kl_coef": "0.16", "lora.enabled": "true", "ppo.target_kl": "null"}


def test_a_log_has_no_policy_that_could_answer(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_run(workspace / "runs" / "log", config(), name="a log", origin=Origin(imported="rollouts.jsonl"))
    for more in ([], ["--start"]):
        assert main(["generate", "log", "--prompt", "x", *more]) == BAD_INPUT
        message = capsys.readouterr().err
        assert "was read from rollouts.jsonl: it has no model that could answer" in message and "--start" not in message
