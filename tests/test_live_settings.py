"""Settings that may change while a run goes on: which they are, their bounds, and schedules as text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, config_from_yaml, config_to_yaml, parse_config
from rlhf_studio.config.live import PlannedChange, read_schedule, with_changes, write_schedule
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import NotRunning, StoreError


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("", []),
        ("8 ppo.kl_coef 0.2", [PlannedChange(8, "ppo.kl_coef", 0.2)]),
        (
            " 8  ppo.kl_coef 1e-3 ,\n20 generation.temperature 1,",
            [PlannedChange(8, "ppo.kl_coef", 0.001), PlannedChange(20, "generation.temperature", 1.0)],
        ),
    ],
)
def test_reading_a_schedule(text: str, changes: list[PlannedChange]) -> None:
    assert read_schedule(text) == changes
    config = parse_config({"ppo": {"schedule": text}})
    assert config.ppo.planned == changes and config_from_yaml(config_to_yaml(config)) == config


def test_writing_a_schedule_loses_no_bit() -> None:
    changes = [PlannedChange(12, "ppo.learning_rate", 1 / 3), PlannedChange(3, "ppo.kl_coef", 0.1 + 0.2)]
    assert read_schedule(write_schedule(changes)) == changes[::-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8 ppo.kl_coef", "'8 ppo.kl_coef' is no change; write step, setting and value, such as 8 ppo.kl_coef 0.2"),
        ("0 ppo.kl_coef 0.2", "'0 ppo.kl_coef 0.2' is no change"),
        ("² ppo.kl_coef 0.2", "is no change"),
        ("8 generation.temperature 0", "generation.temperature in step 8: input should be greater than or equal to 0.000001, not 0.0"),
        ("8 ppo.batch_size 4", "ppo.batch_size in step 8: cannot change while a run goes on; these can: ppo.kl_coef"),
        ("8 ppo.kl_target 4", "ppo.kl_target in step 8: has no effect while ppo.kl_controller is fixed; change ppo.kl_coef instead"),
        ("8 ppo.kl_coef 4, 8 ppo.kl_coef 5", "ppo.kl_coef changes twice in step 8; keep one"),
    ],
)
def test_schedules_that_cannot_be_used(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"ppo": {"schedule": text}})
    (problem,) = caught.value.problems
    assert problem.field == "ppo.schedule" and message in problem.message


def test_changing_a_mapping_leaves_it_as_it_was() -> None:
    settings = RunConfig().model_dump(mode="json")
    changed = with_changes(settings, {"ppo.kl_coef": 0.7})
    assert (settings["ppo"]["kl_coef"], changed["ppo"]["kl_coef"]) == (0.1, 0.7)


# --- at the door ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "name at least one setting to change; these can: ppo.kl_coef"),
        ({"ppo.gamma": 0.9}, "ppo.gamma: cannot change while a run goes on; these can: ppo.kl_coef, ppo.kl_target"),
        ({"ppo.kl_coef": 101}, "ppo.kl_coef: input should be less than or equal to 100, not 101"),
        ({"ppo.kl_coef": True}, "ppo.kl_coef: input should be a valid number, not True"),
        ({"ppo.kl_coef": math.nan}, "ppo.kl_coef: input should be a finite number, not nan"),
        ({"ppo.kl_target": 2.0}, "ppo.kl_target: has no effect while ppo.kl_controller is fixed"),
    ],
)
def test_changes_that_are_refused_at_the_door(tmp_path: Path, changes: Any, message: str) -> None:
    create_run(tmp_path / "run", RunConfig(), name="run")
    with pytest.raises(ConfigError) as caught:
        send_command(tmp_path / "run", "set", {"changes": changes} if changes is not None else None)
    assert len(caught.value.problems) == 1 and message in str(caught.value)


def test_good_changes_of_a_run_that_does_not_run(tmp_path: Path) -> None:
    create_run(tmp_path / "run", RunConfig(), name="run")
    with pytest.raises(NotRunning, match="is not running, so there is nothing to change"):
        send_command(tmp_path / "run", "set", {"changes": {"ppo.kl_coef": 1}})


@pytest.mark.parametrize("engine", [{"processes": 2}, {"accelerate_config": "two-machines.yaml"}])
def test_phases_of_several_processes_are_refused_at_the_door(tmp_path: Path, engine: dict[str, Any]) -> None:
    create_run(tmp_path / "run", RunConfig.model_validate({"engine": engine}), name="run")
    with pytest.raises(StoreError, match="needs a run of one process") as caught:
        send_command(tmp_path / "run", "phase")
    assert caught.value.reason == "state"
    with pytest.raises(NotRunning):
        send_command(tmp_path / "run", "step")
