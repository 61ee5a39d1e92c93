"""The pace that earlier runs tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.config_io import parse_config
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.pace import Pace, known_pace
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter


def config(**sections: dict[str, Any]) -> RunConfig:
    return parse_config({"ppo": {"batch_size": 8, "mini_batch_size": 4}, **sections})


def add_run(root: Path, name: str, settings: RunConfig, seconds: list[float]) -> None:
    folder = root / "runs" / name
    create_run(folder, settings, name=name)
    with RunWriter(folder) as writer:
        for step, value in enumerate(seconds, start=1):
            writer.commit_step(StepRecord(step, {"time/total": value}, []))


def test_nothing_is_known_at_first(tmp_path: Path) -> None:
    assert known_pace(tmp_path, config()) is None
    add_run(tmp_path, "20260101-000000-aaaaaa", config(), [])
    assert known_pace(tmp_path, config()) is None
    (tmp_path / "runs" / "20260102-000000-broken").mkdir()
    assert known_pace(tmp_path, config()) is None


def test_the_median_without_the_first_step(tmp_path: Path) -> None:
    add_run(tmp_path, "a", config(), [50.0, 2.0, 3.0, 100.0])
    assert known_pace(tmp_path, config()) == Pace(3.0, "a", True)
    add_run(tmp_path, "b", config(), [7.0])
    assert known_pace(tmp_path, config()) == Pace(7.0, "b", True)  # the newest, even with one step


def test_the_same_sizes_come_before_a_newer_run_of_others(tmp_path: Path) -> None:
    add_run(tmp_path, "a", config(), [1.0, 2.0])
    add_run(tmp_path, "b", config(ppo={"batch_size": 16, "mini_batch_size": 4}), [1.0, 9.0])
    assert known_pace(tmp_path, config()) == Pace(2.0, "a", True)
    # 32 episodes are twice the newest run's 16; other settings that cost nothing do not matter
    wanted = config(ppo={"batch_size": 32, "mini_batch_size": 4, "kl_coef": 0.5})
    assert known_pace(tmp_path, wanted) == Pace(18.0, "b", False)


@pytest.mark.parametrize(
    "other",
    [
        {"model": {"policy": "else"}},
        {"lora": {"enabled": True}},
        {"engine": {"device": "cpu"}},
        {"critic": {"kind": "separate"}},
        {"engine": {"processes": 2}},
        {"reward": {"components": [{"kind": "length"}]}},
    ],
)
def test_other_models_tell_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    add_run(tmp_path, "a", config(), [1.0, 2.0])
    assert known_pace(tmp_path, config(**other)) is None


def test_a_workspace_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    assert known_pace(tmp_path, config()) is None
