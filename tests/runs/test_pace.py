"""The pace that earlier runs tell."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.pace import Pace, known_pace, slowness, usual_start, whole_seconds
from rlhf_studio.runs.records import EventRecord, StepRecord
from rlhf_studio.runs.writer import RunWriter


def config(**sections: dict[str, Any]) -> RunConfig:
    return parse_config({"ppo": {"batch_size": 8, "mini_batch_size": 4}, **sections})


def add_run(root: Path, name: str, settings: StageConfig, seconds: list[float], **metrics: float) -> None:
    folder = root / "runs" / name
    create_run(folder, settings, name=name)
    with RunWriter(folder) as writer:
        for step, value in enumerate(seconds, start=1):
            writer.commit_step(StepRecord(step, {"time/total": value, **metrics}, []))


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
    assert known_pace(tmp_path, config()) == Pace(3.0, "a", True)
    (tmp_path / "runs" / "a").rename(tmp_path / "elsewhere")
    assert known_pace(tmp_path, config()) == Pace(7.0, "b", True)  # even with one step


def test_what_was_measured_on_a_busy_machine_is_forgotten(tmp_path: Path) -> None:
    """In a run its newest steps count; of several equal runs the fastest of the newest three."""
    add_run(tmp_path, "a", config(), [50.0, *[9.0] * 60, *[2.0] * 40])
    assert known_pace(tmp_path, config()) == Pace(2.0, "a", True)
    add_run(tmp_path, "b", config(), [50.0, 8.0, 8.0])
    assert known_pace(tmp_path, config()) == Pace(2.0, "a", True)
    assert slowness(tmp_path, lambda earlier: earlier.ppo.steps / 60, config()) == 2.0  # 1 s a step was expected
    add_run(tmp_path, "c", config(), [50.0, 4.0])
    add_run(tmp_path, "d", config(), [50.0, 6.0])
    assert known_pace(tmp_path, config()) == Pace(4.0, "c", True)  # the machine may have become slower for good


def test_the_same_sizes_come_before_a_newer_run_of_others(tmp_path: Path) -> None:
    add_run(tmp_path, "a", config(), [1.0, 2.0])
    add_run(tmp_path, "b", config(ppo={"batch_size": 16, "mini_batch_size": 4}), [1.0, 9.0])
    assert known_pace(tmp_path, config()) == Pace(2.0, "a", True)
    # 32 episodes are twice the newest run's 16; other settings that cost nothing do not matter
    changed = config(ppo={"batch_size": 32, "mini_batch_size": 4, "kl_coef": 0.5})
    assert known_pace(tmp_path, changed) == Pace(18.0, "b", False)


OTHERS: list[dict[str, Any]] = [
    {"model": {"policy": "else"}},
    {"lora": {"enabled": True}},
    {"engine": {"device": "cpu"}},
    {"critic": {"kind": "separate"}},
    {"engine": {"processes": 2}},
    {"reward": {"components": [{"kind": "length"}]}},
]


def test_other_models_tell_nothing(tmp_path: Path) -> None:
    add_run(tmp_path, "a", config(), [1.0, 2.0])
    assert [other for other in OTHERS if known_pace(tmp_path, config(**other)) is not None] == []


def test_a_reward_is_the_same_under_another_name_and_weight(tmp_path: Path) -> None:
    def rule(**own: Any) -> RunConfig:
        return config(reward={"components": [{"kind": "length", **own}]})

    add_run(tmp_path, "a", rule(), [1.0, 2.0])
    assert known_pace(tmp_path, rule(name="vader", weight=2.0)) == Pace(2.0, "a", True)


def test_a_workspace_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    assert known_pace(tmp_path, config()) is None


def test_a_stage_learns_only_from_runs_of_its_own(tmp_path: Path) -> None:
    def tuning(stage: str = "sft", **sections: dict[str, Any]) -> StageConfig:
        return parse_config({"stage": stage, **sections})

    add_run(tmp_path, "a", config(), [1.0, 2.0])
    assert known_pace(tmp_path, tuning()) is None
    add_run(tmp_path, "b", tuning(), [1.0, 4.0], **{"speed/tokens_per_second": 500.0})
    assert known_pace(tmp_path, tuning()) == Pace(4.0, "b", True)
    assert known_pace(tmp_path, tuning("dpo")) is None
    assert known_pace(tmp_path, tuning(sft={"learning_rate": 1e-5})) == Pace(4.0, "b", True)
    # half of 32 examples of up to 512 tokens; where they were counted, 4,000 tokens at 500 a second
    half = tuning(sft={"batch_size": 16})
    assert known_pace(tmp_path, half) == Pace(2.0, "b", False)
    assert known_pace(tmp_path, half, tokens=4000) == Pace(8.0, "b", False)
    assert known_pace(tmp_path, tuning(lora={"enabled": True})) is None


def test_an_evaluation_takes_longer_with_more_answers(tmp_path: Path) -> None:
    add_run(tmp_path, "a", parse_config({"stage": "evaluation"}), [1.0, 2.0])
    more = parse_config({"stage": "evaluation", "evaluation": {"samples": 3}})
    assert known_pace(tmp_path, more) == Pace(6.0, "a", False)


def test_how_long_an_engine_takes_to_start(tmp_path: Path) -> None:
    """Of the newest three runs the one that waited least: others stood in the queue first."""
    assert usual_start(tmp_path, "ppo") is None
    for name, waited in (("a", 2.0), ("b", 9.0), ("c", 60.0), ("d", 8.5)):
        add_run(tmp_path, name, config(), [])
        with RunWriter(tmp_path / "runs" / name) as writer:
            writer.event(EventRecord("info", "health", "The forward pass was compared."))
            writer.commit_step(StepRecord(1, {}, [], events=[EventRecord("info", "checkpoint", "Later.")]))
        with closing(sqlite3.connect(tmp_path / "runs" / name / "run.db")) as connection, connection:
            connection.execute("UPDATE run SET created_at = 1000")
            connection.execute("UPDATE events SET at = ? WHERE step = 0", (1000 + waited,))
    add_run(tmp_path, "e", config(), [1.0])  # it has not told
    assert usual_start(tmp_path, "ppo") == 8.5
    assert usual_start(tmp_path, "sft") is None


def test_an_evaluation_takes_as_long_as_one_with_as_much_to_do(tmp_path: Path) -> None:
    """4 steps of 3 s; the same with other prompts has another number of steps, and a PPO run tells nothing of it."""

    def evaluation(prompts: int) -> StageConfig:
        return parse_config({"stage": "evaluation", "evaluation": {"policies": "bundled/world-policy", "prompts": prompts}})

    assert whole_seconds(tmp_path, evaluation(64)) is None
    add_run(tmp_path, "a", config(), [5.0, 5.0])
    add_run(tmp_path, "b", evaluation(64), [9.0, 3.0, 3.0])
    with RunWriter(tmp_path / "runs" / "b") as writer:
        writer.plan(4)
    assert whole_seconds(tmp_path, evaluation(64)) == 12.0
    assert whole_seconds(tmp_path, evaluation(128)) is None
