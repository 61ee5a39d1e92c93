"""A run that asks people: it waits, answers commands meanwhile, and after any end asks again only for what is missing."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_studio.config.io import ConfigError, parse_config
from rlhf_studio.engine.process import control, rating
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE, STOPPED
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.records import NewVote, Task
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config
from tests.engine.kill_loop import exit_code, final_weights, fork_engine

BATCH = 8


def prepare(workspace: Path, name: str = "run", **human: Any) -> Path:
    """A run in a workspace that asks people for every score; one step of eight episodes unless ``steps`` says more."""
    steps = human.pop("steps", 1)
    component = {"kind": "human", "points": 5, "lowest": -2.0, "highest": 2.0, **human}
    config = small_config(workspace, ppo={"steps": steps}, reward={"components": [component]}, engine={"watch_prompts": 2})
    create_run(workspace / "runs" / name, config, name=name, state="loading")
    return workspace / "runs" / name


def task_of(workspace: Path) -> Task:
    (task,) = Feedback(workspace).tasks()
    return task


def grade(text: str) -> int:
    """What our annotators think of a response: from its text alone, so that it is the same in another run."""
    return 1 + len(text.encode()) % 5


def rate_one(workspace: Path, name: str = "Anna", opinion: Callable[[str], int] = grade) -> bool:
    """Answer one response, if there is one to answer."""
    feedback = Feedback(workspace)
    task = task_of(workspace)
    feedback.sign_in(name, "", trusted=True)
    item = feedback.turn(task.id, name).shown
    if item is not None:
        vote = NewVote(f"{name} {item.item.id} {os.urandom(4).hex()}", item.item.id, "rating", opinion(item.item.responses[0]))
        feedback.vote(task.id, name, vote)
    feedback.close()
    return item is not None


def rows_of(run_dir: Path) -> list[Any]:
    with sqlite3.connect(f"{(run_dir / 'run.db').as_uri()}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT step, sample, prompt, response, score, kl FROM rollouts ORDER BY 1, 2").fetchall()
    connection.close()
    return rows


def at_each_look(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> list[float]:
    """Do something where the engine would sleep; its clock goes on by a minute then. Returns the looks."""
    looks: list[float] = []

    def slept(seconds: float) -> None:
        looks.append(seconds)
        act()

    monkeypatch.setattr(rating, "sleep", slept)
    monkeypatch.setattr(rating, "monotonic", lambda: 60.0 * len(looks))
    return looks


def phase_of(run_dir: Path) -> str:
    return RunReader(run_dir).status().phase


def stricter(text: str) -> int:
    return 1 + grade(text) // 2


def test_ratings_become_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of two people's."""
    run_dir = prepare(tmp_path, raters=2)
    phases: list[str] = []

    def act() -> None:
        phases.append(phase_of(run_dir))
        rate_one(tmp_path)
        rate_one(tmp_path, "Ben", stricter)

    at_each_look(monkeypatch, act)
    assert run_engine(run_dir, "train") == DONE
    reader = RunReader(run_dir)
    for sample in range(3):
        episode = reader.rollout(1, sample)
        mean = (grade(episode.response) + stricter(episode.response)) / 2
        assert episode.score == pytest.approx(-2.0 + (mean - 1) / 4 * 4.0)
    assert phases[0] == "Waiting for your ratings: 0 of 16" and len(set(phases)) == len(phases)
    assert not task_of(tmp_path).open, "nobody is asked once the run has gone on"
    assert all(math.isnan(answer.score) for _, answer in reader.watched(ends=True)), "nobody was asked for the watched prompts"
    with pytest.raises(Exception, match="once a run has used it"):
        vote = Feedback(tmp_path).votes(task_of(tmp_path).id)[-1]
        Feedback(tmp_path).undo(task_of(tmp_path).id, "Ben", vote.id)


def test_a_stop_while_it_waits_keeps_what_was_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = prepare(tmp_path, steps=2)

    def act() -> None:
        if len(looks) <= 3:
            rate_one(tmp_path)
        else:
            send_command(run_dir, "stop")

    looks = at_each_look(monkeypatch, act)
    assert run_engine(run_dir, "train") == STOPPED
    status = RunReader(run_dir).status()
    assert (status.state, status.step, status.phase) == ("stopped", 0, "")
    assert not task_of(tmp_path).open and not rate_one(tmp_path), "nobody is asked while the run does not work"
    asked: list[str] = []

    def go_on() -> None:
        asked.append(phase_of(run_dir))
        rate_one(tmp_path)

    at_each_look(monkeypatch, go_on)
    assert run_engine(run_dir, "resume") == DONE
    assert asked[0] == "Waiting for your ratings: 3 of 8", "only what is missing is asked for"
    through = prepare(tmp_path / "other", steps=2)
    at_each_look(monkeypatch, lambda: rate_one(tmp_path / "other"))
    assert run_engine(through, "train") == DONE
    same(run_dir, through)


def same(run_dir: Path, other: Path) -> None:
    ours, theirs = final_weights(run_dir, 2), final_weights(other, 2)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert rows_of(run_dir) == rows_of(other) and len(rows_of(run_dir)) == 6


def test_a_stop_is_a_stop_where_the_task_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = prepare(tmp_path)

    def fails(*_: Any) -> None:
        raise StoreError("feedback.db may not be written", "read-only")

    monkeypatch.setattr(Feedback, "stop_asking", fails)
    at_each_look(monkeypatch, lambda: send_command(run_dir, "stop"))
    assert run_engine(run_dir, "train") == STOPPED
    assert RunReader(run_dir).status().state == "stopped"
    assert [event.text for event in RunReader(run_dir).events_since(0) if "could not be closed" in event.text]


@pytest.mark.long
def test_a_kill_while_it_waits_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = prepare(tmp_path, steps=2)

    def act() -> None:
        if len(looks) == 12:  # in the second step, after four of its ratings
            os.kill(os.getpid(), signal.SIGKILL)
        rate_one(tmp_path)

    looks = at_each_look(monkeypatch, act)
    assert exit_code(fork_engine(run_dir, "train")) == -signal.SIGKILL
    assert RunReader(run_dir).status().state == "interrupted"
    looks.extend([0.0] * 100)  # this process did not look; from now on nobody is killed
    given = len(Feedback(tmp_path).votes(task_of(tmp_path).id))
    assert run_engine(run_dir, "from-start") == DONE  # there was no checkpoint: both steps are played again
    assert given >= 11 and len(Feedback(tmp_path).votes(task_of(tmp_path).id)) == 2 * BATCH, "no response was rated twice"
    through = prepare(tmp_path / "other", steps=2)
    at_each_look(monkeypatch, lambda: rate_one(tmp_path / "other"))
    assert run_engine(through, "train") == DONE
    same(run_dir, through)


@pytest.mark.parametrize("fallback", ["stop", "skip", "number"])
def test_when_the_time_is_over(fallback: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = prepare(tmp_path, time_limit=4.0, fallback=fallback, fallback_score=0.25)
    looks = at_each_look(monkeypatch, lambda: len(looks) == 1 and rate_one(tmp_path))
    assert run_engine(run_dir, "train") == (STOPPED if fallback == "stop" else DONE)
    reader = RunReader(run_dir)
    assert len(looks) == 4, "one look a minute, for four minutes"
    told = [event.text for event in reader.events_since(0) if "7 of 8 ratings were missing after 4 minutes" in event.text]
    assert len(told) == 1
    if fallback == "stop":
        assert reader.status().state == "stopped" and reader.status().step == 0
        assert reader.status().cause == "People did not rate in time: 7 of 8 ratings were missing after 4 minutes."
    elif fallback == "skip":
        assert "objective/scores" not in reader.metrics_since(0)[0][1] and "left out" in told[0]
    else:
        mean = reader.metrics_since(0)[0][1]["objective/scores"]
        (item,) = [item for item in Feedback(tmp_path).items(task_of(tmp_path).id) if item.votes]
        assert mean == pytest.approx((7 * 0.25 + grade(item.responses[0]) - 3) / 8)


def test_pauses_do_not_count_and_a_checkpoint_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = prepare(tmp_path, time_limit=12.0)

    def act() -> None:
        if len(looks) == 1:
            send_command(run_dir, "checkpoint")
            send_command(run_dir, "pause")
        else:
            rate_one(tmp_path)

    states: list[str] = []

    def paused(seconds: float) -> None:
        states.append(RunReader(run_dir).status().state)
        looks.extend([0.0] * 100)  # a hundred minutes
        send_command(run_dir, "continue")

    looks = at_each_look(monkeypatch, act)
    monkeypatch.setattr(control, "sleep", paused)
    assert run_engine(run_dir, "train") == DONE
    assert states == ["paused"]
    saved = [event.data["step"] for event in RunReader(run_dir).events_since(0) if event.kind == "checkpoint"]
    assert saved == [0, 1], "the state from before the step that waits"


def test_settings_that_cannot_be() -> None:
    for field, settings in (
        ("highest", {"lowest": 1.0, "highest": 1.0}),
        ("points", {"points": 1}),
        ("raters", {"raters": 0}),
        ("time_limit", {"time_limit": 0}),
    ):
        with pytest.raises(ConfigError, match=field):
            parse_config({"reward": {"components": [{"kind": "human", **settings}]}})
