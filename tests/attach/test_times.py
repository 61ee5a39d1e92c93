"""When a step was made and how long it took, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlhf_studio.attach import Studio, session
from rlhf_studio.runs.reader import RunReader


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class PPOTrainer:
    """A trainer with a loop of its own: it logs, then ends its step, as TRL's PPO does, and says no step's beginning."""

    def __init__(self, take_step: Callable[[int], None], first: int = 0):
        self.callback_handler = SimpleNamespace(callbacks=[])
        self.model = self.processing_class = None
        self._take_step, self._first = take_step, first

    def add_callback(self, callback: Studio) -> None:
        self.callback_handler.callbacks.append(callback)

    def train(self) -> Path | None:
        (studio,) = self.callback_handler.callbacks
        state = SimpleNamespace(global_step=self._first, max_steps=10, is_world_process_zero=True)
        args, control = SimpleNamespace(output_dir="x"), SimpleNamespace()
        studio.on_train_begin(args, state, control)
        for step in range(self._first + 1, self._first + 5):
            self._take_step(step)
            state.global_step = step
            studio.on_log(args, state, control, logs={"loss/policy_avg": 1.0})
            studio.on_step_end(args, state, control)
        folder: Path | None = studio.run_dir
        studio.on_train_end(args, state, control)
        return folder


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr(session, "time", own)
    return own


def times(folder: Path | None) -> list[tuple[int, float | None, float | None]]:
    assert folder is not None
    return [(step, own.get("time/total"), own.get("time/elapsed")) for step, own in RunReader(folder).metrics_since(0)]


def test_a_steps_time_is_its_own_where_several_steps_have_one_record(tmp_path: Path, clock: Clock) -> None:
    with Studio(workspace=tmp_path) as studio:
        for step in (5, 10, 11):
            clock.now += 2.5
            studio.step(response_tokens=[["a", "b"]], step=step)
        folder = studio.run_dir
    assert times(folder) == [(5, None, 0.0), (10, 0.5, 2.5), (11, 2.5, 5.0)]


def test_a_step_of_a_trainer_that_says_no_steps_beginning_ends_with_its_log(tmp_path: Path, clock: Clock) -> None:
    def take(step: int) -> None:
        clock.now += step % 10

    for first in (0, 20):  # from the beginning, and resumed
        for watched in (True, False):
            trainer, studio = PPOTrainer(take, first), Studio(workspace=tmp_path)
            if watched:
                studio.watch(trainer)
            else:
                trainer.add_callback(studio)
            expected = [(first + 1, 1.0, 1.0), (first + 2, 2.0, 3.0), (first + 3, 3.0, 6.0), (first + 4, 4.0, 10.0)]
            assert times(trainer.train()) == expected
