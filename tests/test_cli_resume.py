"""Resuming from the command line with other settings: what may change, what it does, and how it is put on record."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import RunConfig
from rlhf_studio.config.changes import changes_between, refusals
from rlhf_studio.config.io import config_from_file, config_to_yaml
from rlhf_studio.runs import create
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import EngineLock, is_starting
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps that has finished, with a rate that falls to 0."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "run.yaml").write_text(config_to_yaml(small_config(folder, ppo={"kl_coef": 0.1, "learning_rate": 1e-3})), encoding="utf-8")
    assert main(["train", "--config", str(folder / "run.yaml"), "--run-dir", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def ended(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def rates(run_dir: Path) -> list[Any]:
    return [values["lr"] for _, values in RunReader(run_dir).metrics_since(0)]


def test_more_steps_and_another_coefficient(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (ended / "config.yaml").read_text(encoding="utf-8")
    first = RunReader(ended).metrics_since(0)
    assert rates(ended) == pytest.approx([1e-3, 0.5e-3])  # linear over two steps
    assert main(["resume", str(ended), "--ppo.steps", "4", "--ppo.kl_coef=0.3"]) == 0
    reader = RunReader(ended)
    status = reader.status()
    assert (status.state, status.step, status.total_steps) == ("finished", 4, 4)
    assert reader.metrics_since(0)[:2] == first
    # by hand: linear over four steps is 1 - 2/4 and 1 - 3/4 of the whole rate in steps 3 and 4
    assert rates(ended)[2:] == pytest.approx([0.5e-3, 0.25e-3])
    assert [values["objective/kl_coef"] for _, values in reader.metrics_since(0)] == [0.1, 0.1, 0.3, 0.3]
    (event,) = (event for event in reader.newest_events() if event.kind == "setting")
    assert event.step == 2 and event.data["changes"] == [
        {"setting": "ppo.steps", "old": 2, "new": 4},
        {"setting": "ppo.kl_coef", "old": 0.1, "new": 0.3},
    ]
    assert event.text == (
        "Changed after step 2: ppo.steps from 2 to 4, ppo.kl_coef from 0.1 to 0.3. "
        "The learning rate was 0.0005 in step 2; in step 3 it is 0.0005, and would have been 0."
    )
    assert (reader.config().ppo.steps, reader.config().ppo.kl_coef) == (4, 0.3)
    assert (ended / "config-1.yaml").read_text(encoding="utf-8") == before
    assert "Changed after step 2" in capsys.readouterr().out


def test_what_a_resumed_run_keeps_is_refused_by_name(ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in ended.iterdir()), (ended / "config.yaml").read_bytes()
    for arguments, expected in (
        (["--model.policy", str(tmp_path)], "model.policy: cannot change when a run is resumed: the checkpoint holds weights"),
        (["--lora.r", "8"], "lora.r: cannot change when a run is resumed: the checkpoint holds adapters"),
        (["--data.shuffle", "false"], "data.shuffle: cannot change when a run is resumed: the checkpoint holds a place"),
        (["--engine.seed", "7"], "engine.seed: cannot change"),
        (
            ["--ppo.advantage", "rloo", "--ppo.responses_per_prompt", "2"],
            "ppo.advantage: cannot change when a run is resumed",
        ),
        (["--ppo.steps", "1"], "ppo.steps: 1 is less than the 2 steps that are done; use at least that"),
        (["--ppo.kl_coef", "nan"], "ppo.kl_coef: input should be a number"),
        (["--generation.response_length", "5000"], "generation.response_length"),
        (["--ppo.nothing", "1"], "ppo.nothing: there is no such setting"),
    ):
        assert main(["resume", str(ended), *arguments]) == 2, arguments
        assert expected in capsys.readouterr().err
    assert (sorted(path.name for path in ended.iterdir()), (ended / "config.yaml").read_bytes()) == before
    assert not is_starting(ended)


def test_from_step_0_only_the_run_folder_decides(ended: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--model.policy", str(tmp_path)], ["--lora.r", "8"], ["--name", "other"]):
        assert main(["resume", str(ended), "--from-start", *arguments]) == 2, arguments
        assert f"{arguments[0][2:]}: cannot change when a run is resumed" in capsys.readouterr().err
    assert not (ended / "config-1.yaml").exists()
    assert main(["resume", str(ended), "--from-start", "--ppo.steps", "1", "--engine.seed", "4"]) == 0
    reader = RunReader(ended)
    status = reader.status()
    assert (status.state, status.step, status.total_steps, reader.config().engine.seed) == ("finished", 1, 1, 4)
    assert [point.step for point in reader.checkpoints()] == [1]


def test_a_run_at_work_keeps_its_settings(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (ended / "config.yaml").read_bytes()
    with EngineLock(ended):
        assert main(["resume", str(ended), "--ppo.steps", "9"]) == 2
    assert "already working" in capsys.readouterr().err and (ended / "config.yaml").read_bytes() == before


def test_checkpoints_that_do_not_say_their_settings(ended: Path) -> None:
    """Those of earlier versions: what the run began with is beside the present settings."""
    state = ended / "checkpoints" / "step-000002" / "state.json"
    numbers = json.loads(state.read_text())
    assert numbers.pop("settings")["ppo"]["steps"] == 2
    state.write_text(json.dumps(numbers, indent=1))
    manifest = state.with_name("manifest.json")
    entries = json.loads(manifest.read_text())
    entries["files"]["state.json"] = {"bytes": state.stat().st_size, "sha256": hashlib.sha256(state.read_bytes()).hexdigest()}
    manifest.write_text(json.dumps(entries))
    assert main(["resume", str(ended), "--ppo.steps", "3", "--ppo.kl_coef", "0.3"]) == 0
    (event,) = (event for event in RunReader(ended).newest_events() if event.kind == "setting")
    assert "ppo.steps from 2 to 3" in event.text and "ppo.kl_coef from 0.1 to 0.3" in event.text
    assert RunReader(ended).metrics_since(2)[0][1]["objective/kl_coef"] == 0.3


def test_differences_reach_into_the_list_of_rewards() -> None:
    before = RunConfig().model_dump(mode="json")
    after = json.loads(json.dumps(before))
    after["reward"]["components"][0]["weight"] = 2.5
    after["reward"]["components"].append({"kind": "length"})
    del before["engine"]["seed"]  # another version's file
    changes = changes_between(before, after)
    assert {change.setting: change.new for change in changes} == {"reward.components.0.weight": 2.5, "reward.components.1.kind": "length"}
    assert refusals(changes) == []


def test_settings_are_replaced_at_one_moment(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever moment the program dies at, config.yaml is whole: the old one, or the new one with the old beside it."""
    old = RunReader(ended).config()
    new = RunConfig.model_validate({**old.model_dump(), "ppo": {**old.ppo.model_dump(), "steps": 9}})

    def full(*paths: Any) -> None:
        raise OSError(28, "No space left on device")

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patch, pytest.raises(StoreError, match="The disk is full"):
            patch.setattr(os, name, full)
            create.replace_config(ended, new)
        assert config_from_file(ended / "config.yaml") == old
    create.replace_config(ended, new)
    assert config_from_file(ended / "config.yaml") == new
    assert all(config_from_file(path) == old for path in ended.glob("config-*.yaml"))
