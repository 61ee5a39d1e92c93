"""Settings that change while a run goes on: in force at the next step, on record, kept by checkpoints, and played again to the bit."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_studio.cli.main import main
from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import config_from_yaml
from rlhf_studio.config.live import PlannedChange
from rlhf_studio.engine.loop.changed_settings import forgotten
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process import control
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE, STOPPED
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.launch import engine_processes
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, SettingChange, StepRecord
from rlhf_studio.runs.show import config_to_replay
from tests.engine.test_processes import check_metrics
from tests.engine.test_stepping import answers, at_each_wait, paused_at_first, prepare, same
from tests.waiting import wait_until

STEPS = 6
PPO = {"steps": STEPS, "lr_schedule": "linear", "warmup_steps": 1, "kl_coef": 0.1}


def changing(run_dir: Path, **changes: float) -> Callable[[], int]:
    """Ask for other values of settings; ``ppo__kl_coef`` stands for ``ppo.kl_coef``."""
    return lambda: send_command(run_dir, "set", {"changes": {name.replace("__", "."): value for name, value in changes.items()}})


def play(run_dir: Path, monkeypatch: pytest.MonkeyPatch, *commands: str | Callable[[], Any], code: int = DONE) -> Path:
    """Pause before the first step, then give one command at each wait."""
    with monkeypatch.context() as patch:
        at_each_wait(patch, answers(run_dir, *commands))
        patch.setattr(control.Control, "before_step", paused_at_first(run_dir, control.Control.before_step))
        assert run_engine(run_dir, "train") == code
    return run_dir


def with_all_changes(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Changes of all four settings: between steps, in the middle of one, and one that is changed back."""
    first = changing(run_dir, ppo__kl_coef=0.25, generation__temperature=0.7)
    inside = changing(run_dir, ppo__learning_rate=3e-4, ppo__kl_target=0.9)
    back = changing(run_dir, generation__temperature=1.0)
    return play(run_dir, monkeypatch, "step", first, "step", "phase", "phase", inside, "step", "step", back, "continue")


EXPECTED = [
    SettingChange(2, "ppo.kl_coef", 0.0, 0.25),  # what it was before is up to the controller
    SettingChange(2, "generation.temperature", 1.0, 0.7),
    SettingChange(4, "ppo.learning_rate", 1e-3, 3e-4),
    SettingChange(4, "ppo.kl_target", 0.5, 0.9),
    SettingChange(5, "generation.temperature", 0.7, 1.0),
]


def answers_to_changes(run_dir: Path) -> list[str]:
    with sqlite3.connect(run_dir / "run.db") as connection:
        outcomes = [row[0] for row in connection.execute("SELECT outcome FROM commands WHERE kind = 'set'")]
    connection.close()
    return outcomes


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    run_dir = prepare(tmp_path_factory.mktemp("changed") / "run", ppo=PPO)
    with pytest.MonkeyPatch.context() as patch:
        return with_all_changes(run_dir, patch)


def test_in_force_from_the_next_step_on_and_on_record(changed: Path) -> None:
    reader = RunReader(changed)
    metrics = dict(reader.metrics_since(0))
    actual = reader.changes()
    assert [(change.step, change.setting, change.new) for change in actual] == [(c.step, c.setting, c.new) for c in EXPECTED]
    assert [change.old for change in actual[1:]] == [change.old for change in EXPECTED[1:]]
    assert 0 < actual[0].old < 0.1, "β as the controller had lowered it, not as config.yaml says"
    assert metrics[1]["objective/kl_coef"] == pytest.approx(0.1) and metrics[2]["objective/kl_coef"] == pytest.approx(0.25)
    fall = {1: 0.5, 2: 1.0, 3: 0.8, 4: 0.6, 5: 0.4, 6: 0.2}  # one step of warm-up, then a straight line over five steps
    for step, share in fall.items():
        assert metrics[step]["lr"] == pytest.approx((1e-3 if step < 4 else 3e-4) * share, rel=1e-6), "the same shape from another peak"
    texts = [(event.step, event.text) for event in reader.events_since(0) if event.kind == "setting"]
    assert [step for step, _ in texts] == [2, 4, 5]
    assert texts[1][1] == "Learning rate from 0.001 to 0.0003, from step 4 on. KL target from 0.5 to 0.9, from step 4 on."
    assert reader.config().ppo.kl_coef == 0.1 and reader.config().generation.temperature == 1.0, "config.yaml is as it was at the start"
    assert answers_to_changes(changed) == ["done: from step 2 on", "done: from step 4 on", "done: from step 5 on"]


def test_the_temperature_counts_in_sampling_and_in_every_log_probability(changed: Path) -> None:
    """At another temperature the policy's first ratio is still 1: sampling, reference and update divide by the same."""
    metrics = dict(RunReader(changed).metrics_since(0))
    assert all(abs(metrics[step]["policy/first_log_ratio"]) < 1e-5 for step in range(1, STEPS + 1))


def test_played_again_from_its_record_it_is_the_same_run(changed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["runs", "config", str(changed), "--with-changes"]) == 0
    config = config_from_yaml(capsys.readouterr().out)
    assert config.ppo.schedule.startswith("2 ppo.kl_coef 0.25, 2 generation.temperature 0.7, 4 ppo.learning_rate 0.0003")
    again = changed.parent / "again"
    create_run(again, config, name="again", state="loading")
    assert run_engine(again, "train") == DONE
    same(again, changed, STEPS)
    assert RunReader(again).changes() == RunReader(changed).changes()
    assert config_to_replay(again) == config, "a run that was played again is played again in the same way"


def test_a_stop_and_a_resume_keep_the_changes(changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the middle of the changes: step 3 is done, and the change for step 4 is asked for after the resume."""
    run_dir = prepare(tmp_path / "run", ppo=PPO)
    first = changing(run_dir, ppo__kl_coef=0.25, generation__temperature=0.7)
    play(run_dir, monkeypatch, "step", first, "step", "step", "stop", code=STOPPED)
    inside, back = changing(run_dir, ppo__learning_rate=3e-4, ppo__kl_target=0.9), changing(run_dir, generation__temperature=1.0)
    with monkeypatch.context() as patch:
        at_each_wait(patch, answers(run_dir, inside, "step", back, "continue"))
        patch.setattr(control.Control, "before_step", paused_at_first(run_dir, control.Control.before_step))
        assert run_engine(run_dir, "resume") == DONE
    same(run_dir, changed, STEPS)
    assert RunReader(run_dir).changes() == RunReader(changed).changes()


def test_after_a_kill_the_recorded_changes_are_made_again(changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in step 6, then in step 4; gone on with from the checkpoint of step 3. Changes of steps 4 and 5 are on record."""
    run_dir = prepare(tmp_path / "run", ppo=PPO, engine={"checkpoint_every": 3})
    original = Trainer.step

    def killed_at(step: int) -> Callable[[Trainer], StepRecord]:
        def stepped(trainer: Trainer) -> StepRecord:
            record = original(trainer)
            if record.step == step:
                raise KeyboardInterrupt
            return record

        return stepped

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "step", killed_at(6))
        with_all_changes(run_dir, patch)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "step", killed_at(4))
        run_engine(run_dir, "resume")
    assert run_engine(run_dir, "resume") == DONE
    same(run_dir, changed, STEPS)


@pytest.mark.parametrize("then", [["stop"], ["phase", "kill"]], ids=["stop", "kill"])
def test_a_change_that_no_step_was_trained_with_yet_is_made_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: list[str]
) -> None:
    """Accepted before step 2, or before its step 3 by a step 2 that waits, and then the run ends at once."""
    run_dir = prepare(tmp_path / "run", ppo={"steps": 3, "kl_controller": "fixed", "kl_coef": 0.1}, engine={"checkpoint_every": 1})
    first, second = changing(run_dir, ppo__kl_coef=0.3), changing(run_dir, ppo__kl_coef=0.5)

    def killed() -> None:
        raise KeyboardInterrupt

    asked = ["step", first, *then] if len(then) == 1 else ["step", first, *then[:-1], second, then[-1]]
    commands = [killed if command == "kill" else command for command in asked]
    if "kill" in then:
        with pytest.raises(KeyboardInterrupt):  # one more wait, in which the second change is accepted
            play(run_dir, monkeypatch, *commands)
    else:
        play(run_dir, monkeypatch, *commands, code=STOPPED)
    expected = {1: 0.1, 2: 0.3, 3: 0.3 if len(then) == 1 else 0.5}
    assert RunReader(run_dir).changes() == [], "no step was trained with them yet"
    assert then != ["stop"] or answers_to_changes(run_dir) == ["kept: a resume trains step 2 with them"]
    assert run_engine(run_dir, "resume") == DONE
    reader = RunReader(run_dir)
    assert {step: row["objective/kl_coef"] for step, row in reader.metrics_since(0)} == pytest.approx(expected)
    made = [SettingChange(2, "ppo.kl_coef", 0.1, 0.3), SettingChange(3, "ppo.kl_coef", 0.3, 0.5)]
    assert reader.changes() == made[: len({*expected.values()}) - 1]
    assert [event.step for event in reader.events_since(0) if event.kind == "setting"] == [change.step for change in reader.changes()]


def test_beginning_again_forgets_the_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = prepare(tmp_path / "run", ppo={**PPO, "steps": 2}, engine={"checkpoint_every": 1})
    play(run_dir, monkeypatch, "step", changing(run_dir, ppo__kl_coef=0.9), "continue")
    assert [change.step for change in RunReader(run_dir).changes()] == [2]
    assert run_engine(run_dir, "from-start") == DONE
    assert RunReader(run_dir).changes(later_too=True) == []
    texts = [event.text for event in RunReader(run_dir).events_since(0) if event.kind == "resume"]
    assert texts == ["The run starts again from step 0. Changes of settings that are not made again: KL coefficient to 0.9 in step 2."]


def test_what_was_asked_for_before_the_first_step_is_made_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = prepare(tmp_path / "run", ppo={"steps": 2, "kl_controller": "fixed", "kl_coef": 0.1, "lr_schedule": "constant"})

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(run_dir, monkeypatch, changing(run_dir, ppo__kl_coef=0.3, ppo__learning_rate=5e-4), killed)
    assert main(["resume", str(run_dir), "--ppo.learning_rate", "0.002"]) == DONE
    metrics = dict(RunReader(run_dir).metrics_since(0))
    assert [metrics[step]["objective/kl_coef"] for step in (1, 2)] == pytest.approx([0.3, 0.3])
    assert [metrics[step]["lr"] for step in (1, 2)] == pytest.approx([0.002, 0.002], rel=1e-6), "what the resume itself says wins"
    assert [(change.step, change.setting) for change in RunReader(run_dir).changes()] == [(1, "ppo.kl_coef")]


def test_what_a_schedule_makes_again_is_not_said_to_be_lost() -> None:
    changes = [SettingChange(2, "ppo.kl_coef", 0.1, 0.3), *(SettingChange(step, "ppo.kl_target", 1.0, 2.0) for step in range(3, 13))]
    assert forgotten(changes[:1], [PlannedChange(2, "ppo.kl_coef", 0.3)]) == ""
    assert forgotten(changes, []).endswith("in step 9, and 3 more.")


@pytest.mark.long
def test_a_run_whose_resume_changed_more_than_a_schedule_can_is_played_again_once_it_began_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = prepare(tmp_path / "run", ppo={"steps": 2}, engine={"watch_prompts": 2})
    play(run_dir, monkeypatch, "step", "stop", code=STOPPED)
    assert main(["resume", str(run_dir), "--ppo.gamma", "0.9"]) == DONE
    with pytest.raises(StoreError, match=r"cannot be played again from its settings: a resume changed ppo.gamma from 1.0 to 0.9"):
        config_to_replay(run_dir)
    assert main(["resume", str(run_dir), "--from-start", "--ppo.learning_rate", "0.002"]) == DONE
    again = tmp_path / "again"
    create_run(again, config_to_replay(run_dir), name="again", state="loading")
    assert run_engine(again, "train") == DONE
    same(again, run_dir, 2)


def test_a_fork_is_not_played_again_from_its_settings(tmp_path: Path) -> None:
    create_run(tmp_path / "fork", RunConfig(), name="fork", origin=Origin(parent="p", parent_step=3))
    with pytest.raises(StoreError, match="goes on from step 3 of another run"):
        config_to_replay(tmp_path / "fork")


# --- a resume that gives other settings --------------------------------------------------------------------------------------------


def test_a_resume_that_gives_other_settings_wins_and_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = prepare(tmp_path / "run", ppo={"steps": 3, "kl_controller": "fixed", "kl_coef": 0.1, "lr_schedule": "constant"})
    both = changing(run_dir, ppo__kl_coef=0.3, ppo__learning_rate=5e-4)
    play(run_dir, monkeypatch, "step", both, "step", "stop", code=STOPPED)
    assert main(["resume", str(run_dir), "--ppo.kl_coef", "0.7"]) == DONE
    metrics = dict(RunReader(run_dir).metrics_since(0))
    assert [metrics[step]["objective/kl_coef"] for step in (1, 2, 3)] == pytest.approx([0.1, 0.3, 0.7])
    assert [metrics[step]["lr"] for step in (1, 2, 3)] == pytest.approx([1e-3, 5e-4, 5e-4], rel=1e-6), "the other one stays"
    assert RunReader(run_dir).changes()[2:] == [SettingChange(3, "ppo.kl_coef", 0.3, 0.7)]
    assert "ppo.kl_coef from 0.3 to 0.7" in [event.text for event in RunReader(run_dir).events_since(0) if event.kind == "setting"][-1]
    again = tmp_path / "again"
    create_run(again, config_to_replay(run_dir), name="again", state="loading")
    assert run_engine(again, "train") == DONE
    same(again, run_dir, 3)


def test_a_resume_that_names_what_config_yaml_says_wins_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = prepare(tmp_path / "run", ppo={"steps": 2, "kl_controller": "fixed", "kl_coef": 0.1})
    play(run_dir, monkeypatch, changing(run_dir, ppo__kl_coef=0.3), "step", "stop", code=STOPPED)
    assert main(["resume", str(run_dir), "--ppo.kl_coef", "0.1"]) == DONE
    metrics = dict(RunReader(run_dir).metrics_since(0))
    assert [metrics[step]["objective/kl_coef"] for step in (1, 2)] == pytest.approx([0.3, 0.1])


# --- several processes ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_two_processes_step_and_change_together(tmp_path: Path) -> None:
    """Two processes that are asked for changes are one process whose schedule plans them, up to rounding."""
    settings: dict[str, Any] = {"ppo": {"steps": 3}, "engine": {"threads": 1, "checkpoint_every": 2}}
    two = prepare(tmp_path / "two", **{**settings, "engine": {**settings["engine"], "processes": 2}})
    engine = subprocess.Popen([sys.executable, "-m", "rlhf_studio", "train", str(two)], env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        wait_until(lambda: RunReader(two).status().state == "loading" and RunReader(two).status().phase != "", 60)
        send_command(two, "pause")
        changing(two, ppo__kl_coef=0.5, generation__temperature=0.8)()
        send_command(two, "step")
        wait_until(lambda: (RunReader(two).status().state, RunReader(two).status().step) == ("paused", 1), 120)
        changing(two, ppo__learning_rate=2e-4)()
        send_command(two, "continue")
        assert engine.wait(120) == DONE
    finally:
        for pid in engine_processes(two):
            os.kill(pid, signal.SIGKILL)
    schedule = "1 ppo.kl_coef 0.5, 1 generation.temperature 0.8, 2 ppo.learning_rate 0.0002"
    assert config_to_replay(two).ppo.schedule == schedule
    one = prepare(tmp_path / "one", **{**settings, "ppo": {"steps": 3, "schedule": schedule}})
    assert run_engine(one, "train") == DONE
    check_metrics(two, one)
