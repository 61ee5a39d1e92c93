"""The memory that is estimated before a run: kept with it, never worked out again, and right for long prompts."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlhf_studio.cli.main import main
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.inputs import preflight
from rlhf_studio.inputs.checks import prompts as prompt_checks
from rlhf_studio.inputs.prompts import preview
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from tests.engine.conftest import small_config
from tests.engine.small_models import save_policy, save_prompts, save_reward_model

pytestmark = pytest.mark.slow


def measured(run_dir: Path) -> dict[str, Any]:
    """What the event after the first step says, in bytes."""
    (event,) = (event for event in RunReader(run_dir).events_since(0) if event.kind == "memory")
    return event.data


def test_the_estimate_is_kept_with_the_run_and_nobody_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(tmp_path, ppo={"steps": 1, "ppo_epochs": 1})
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    expected = preflight.inspect_run(config, tmp_path).expected_peak
    own = Trainer.step

    def asked(*things: object, **named: object) -> None:
        raise AssertionError("training asked again what was asked before the start")

    def step(trainer: Trainer) -> StepRecord:
        # the hub or the models' files, the GPUs, the data, the tokenizer
        monkeypatch.setattr(preflight.look, "learner_check", asked)
        monkeypatch.setattr(preflight, "find_gpus", asked)
        monkeypatch.setattr(preflight.look, "find_device", asked)
        monkeypatch.setattr(prompt_checks, "read_once", asked)
        monkeypatch.setattr(preview, "load_encoder", asked)
        monkeypatch.setattr("socket.socket.connect", asked)
        return own(trainer)

    monkeypatch.setattr(Trainer, "step", step)
    assert main(["train", "--config", str(tmp_path / "run.yaml"), "--run-dir", str(tmp_path / "run")]) == 0
    actual = measured(tmp_path / "run")
    assert expected == (actual["low"], actual["high"])


def long_dialogues(folder: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    """Settings of one step with 64 prompts of 200 to 600 tokens, and a model that reads them in about a second."""
    words, drawn = [f"w{number}" for number in range(998)], random.Random(0)
    save_policy(folder / "policy", words=words, width=128, layers=2, positions=1024)
    save_prompts(folder / "prompts.txt", [" ".join(drawn.choices(words, k=drawn.randint(200, 600))) for _ in range(64)])
    settings: dict[str, dict[str, Any]] = {
        "model": {"policy": str(folder / "policy")},
        "data": {"prompts": str(folder / "prompts.txt"), "max_prompt_tokens": 600},
        "reward": {"components": [{"kind": "length"}]},
        "ppo": {"steps": 1, "batch_size": 64, "mini_batch_size": 64, "micro_batch_size": 4, "ppo_epochs": 1},
        "generation": {"response_length": 4},
        "engine": {"device": "cpu", "watch_prompts": 0, "threads": 2},
    }
    return {section: {**settings.get(section, {}), **changes.get(section, {})} for section in {*settings, *changes}}


def trained(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The same of a run in a process of its own, whose memory nothing else has used."""
    (folder / "run.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [sys.executable, "-m", "rlhf_studio", "train", "--config", str(folder / "run.yaml"), "--run-dir", str(folder / "run")]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "2"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return measured(folder / "run")


@pytest.mark.long
def test_long_prompts_stay_within_the_estimate(tmp_path: Path) -> None:
    """A forward pass of 64 of them takes more memory than anything else in this run."""
    actual = trained(tmp_path, long_dialogues(tmp_path))
    assert actual["low"] <= actual["peak"] <= actual["high"]


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"ppo": {"micro_batch_size": 32}, "generation": {"batch_size": 2}},
        {"lora": {"enabled": True}},
        {"lora": {"enabled": True}, "ppo": {"micro_batch_size": 32}, "generation": {"batch_size": 2}},
        {"generation": {"batch_size": 8}},
        {"critic": {"kind": "separate", "start": "policy"}},
        {"data": {"max_prompt_tokens": 64}, "reward": {"components": [{"kind": "reward_model", "batch_size": 64, "max_tokens": 1000}]}},
    ],
    ids=["update", "lora", "lora update", "few together", "critic", "reward model reads more than the policy"],
)
def test_other_long_runs_stay_within_the_estimate(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = long_dialogues(tmp_path, **changes)
    for component in settings["reward"]["components"]:
        if component["kind"] == "reward_model":
            words = [f"w{number}" for number in range(998)]
            component["model"] = str(save_reward_model(tmp_path / "judge", words=words, width=128, layers=2, positions=1024))
    actual = trained(tmp_path, settings)
    assert actual["low"] <= actual["peak"] <= actual["high"]
