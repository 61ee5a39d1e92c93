"""Going through a run by updates and by phases, and changing its settings meanwhile: what is learned stays exact, and nothing is lost."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_studio.engine.compute.ranks import Ranks
from rlhf_studio.engine.process import control
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE, STOPPED
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config
from tests.engine.kill_loop import final_weights

STEPS = 4
PHASES = ["rollout", "score", "reference", "advantages", "update"]
ADAPTIVE = {"kl_controller": "adaptive", "kl_horizon": 50, "kl_target": 0.5}


def prepare(run_dir: Path, **changes: dict[str, Any]) -> Path:
    """A run with everything that a step changes: an adaptive β, dropout, running moments of the scores, prompts in several passes."""
    settings: dict[str, dict[str, Any]] = {
        "ppo": {"steps": STEPS, **ADAPTIVE},
        "lora": {"enabled": True, "r": 4, "dropout": 0.2},
        "reward": {"scaling": "normalise"},
        "engine": {"checkpoint_every": 2, "watch_prompts": 2},
    }
    for section, values in changes.items():
        settings[section] = {**settings.get(section, {}), **values}
    create_run(run_dir, small_config(run_dir.parent, **settings), name=run_dir.name, state="loading")
    return run_dir


@pytest.fixture(autouse=True)
def _no_step_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine: a test that is about long steps says so."""
    monkeypatch.setattr(control, "LONG_STEP", math.inf)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    return lambda name="run", **changes: prepare(tmp_path / name, **changes)


def at_each_wait(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any]) -> None:
    """Do something instead of waiting."""
    monkeypatch.setattr(control, "sleep", lambda seconds: answer())


def rows(run_dir: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What every step left in the store, but for what depends on the clock; read without our own reader."""
    with sqlite3.connect(f"{(run_dir / 'run.db').as_uri()}?mode=ro", uri=True) as connection:
        measured = "name NOT LIKE 'time/%' AND name NOT LIKE 'speed/%' AND name NOT LIKE 'memory/%'"
        tables = {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in ("rollouts", "token_texts", "token_arrays", "watched", "step_arrays", "pieces")
        }
        tables["metrics"] = connection.execute(
            f"SELECT step, name, value, flag FROM metrics JOIN metric_names ON id = metric WHERE {measured} ORDER BY 1, 2"
        ).fetchall()
        assert connection.execute("SELECT count(*) FROM scratch").fetchone() == (0,), "what waited is gone with its step"
    connection.close()
    return tables


def same(run_dir: Path, other: Path, steps: int = STEPS) -> None:
    ours, theirs = final_weights(run_dir, steps), final_weights(other, steps)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert rows(run_dir) == rows(other)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that went through."""
    torch.set_num_threads(1)
    run_dir = prepare(tmp_path_factory.mktemp("whole") / "run")
    assert run_engine(run_dir, "train") == DONE
    return run_dir


KNOWN_AFTER = {
    "rollout": {"logprobs", "entropy", "values"},
    "score": set(),
    "reference": {"ref_logprobs", "kl"},
    "advantages": {"rewards", "deltas", "advantages", "whitened_advantages", "returns"},
    "update": {"new_logprobs", "ratio", "clipped"},
}
"""What a waiting step shows of each token, beside what it showed before."""


def test_phase_by_phase_is_the_same_run(make_run: Callable[..., Path], whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps by phases, then without a stop. What waits is what the step then records."""
    run_dir = make_run()
    waits: list[tuple[str, str, int]] = []
    first_step: dict[str, list[Any]] = {}

    def go_on() -> None:
        reader = RunReader(run_dir)
        status, scratch = reader.status(), reader.scratch()
        waits.append((status.state, status.phase, status.step))
        if status.phase:
            assert scratch is not None and (scratch.step, scratch.phase) == (status.step + 1, PHASES[(len(waits) - 2) % 6])
            first_step.setdefault(scratch.phase, scratch.rollouts)
        else:
            assert scratch is None, "the step is done, or has not begun"
        send_command(run_dir, "phase" if status.step < 2 else "continue")

    at_each_wait(monkeypatch, go_on)
    monkeypatch.setattr(control.Control, "before_step", paused_at_first(run_dir, control.Control.before_step))
    assert run_engine(run_dir, "train") == DONE
    done = [f"Paused after {name}" for name in ("sampling", "scoring", "the reference pass", "the advantages", "the update")]
    by_phases = [("paused", f"{text}, in step {step + 1}" if text else "", step) for step in range(2) for text in ("", *done)]
    assert waits == [*by_phases, ("paused", "", 2)]
    same(run_dir, whole)
    so_far: set[str] = set()
    assert list(first_step) == list(KNOWN_AFTER)
    for phase, names in KNOWN_AFTER.items():
        so_far |= names
        assert len(first_step[phase]) == 3
        for sample, record in enumerate(first_step[phase]):
            final = RunReader(run_dir).rollout(1, sample)
            texts = [(one.prompt, one.response, one.length, one.stopped) for one in (record, final)]
            assert texts[0] == texts[1] and set(record.tokens.arrays) == so_far
            for name in so_far:
                np.testing.assert_array_equal(record.tokens.arrays[name], final.tokens.arrays[name])
            np.testing.assert_array_equal(record.tokens.top_ids, final.tokens.top_ids)
            assert record.tokens.response_pieces == final.tokens.response_pieces
            assert math.isnan(record.score) if phase == "rollout" else (record.score, record.parts) == (final.score, final.parts)
            assert math.isnan(record.kl) if phase in ("rollout", "score") else record.kl == final.kl
            assert record.tokens.ref_top_ids.shape == (record.length, 0 if phase in ("rollout", "score") else 5)


def paused_at_first(run_dir: Path, original: Callable[[Any], None]) -> Callable[[Any], None]:
    sent: list[int] = []

    def before_step(self: Any) -> None:
        if not sent:
            sent.append(send_command(run_dir, "pause"))
        original(self)

    return before_step


def answers(run_dir: Path, *commands: str | Callable[[], Any]) -> Callable[[], None]:
    """One command at each wait, in order."""
    waiting: Iterator[Any] = iter(commands)

    def go_on() -> None:
        command = next(waiting)
        if callable(command):
            command()
        else:
            send_command(run_dir, command)  # type: ignore[arg-type]

    return go_on


@pytest.mark.parametrize(("how", "phases"), [("stop", 2), ("signal", 5), ("discard", 5)])
def test_stopping_inside_a_step_loses_nothing(
    make_run: Callable[..., Path], whole: Path, monkeypatch: pytest.MonkeyPatch, how: str, phases: int
) -> None:
    """Step 3 waits after some of its phases. The stop saves what the run was after step 2; only where nothing is to be saved is
    that done before. After a resume the run is the same."""
    run_dir = make_run(engine={"checkpoint_every": 0})
    stop = (lambda: os.kill(os.getpid(), signal.SIGTERM)) if how == "signal" else how
    at_each_wait(monkeypatch, answers(run_dir, "step", "step", *(["checkpoint"] if how == "discard" else []), *["phase"] * phases, stop))
    monkeypatch.setattr(control.Control, "before_step", paused_at_first(run_dir, control.Control.before_step))
    assert run_engine(run_dir, "train") == STOPPED
    reader = RunReader(run_dir)
    finished = 3 if phases == 5 and how != "discard" else 2  # after its update, a step is finished before the run stops
    assert (reader.status().state, reader.status().step, reader.scratch()) == ("stopped", finished, None)
    assert reader.checkpoints()[-1].step == finished
    assert run_engine(run_dir, "resume") == DONE
    assert RunReader(run_dir).status().epoch == 1
    same(run_dir, whole)


@pytest.mark.parametrize("phases", [4, 5])
def test_a_checkpoint_that_is_asked_for_inside_a_step(
    make_run: Callable[..., Path], whole: Path, monkeypatch: pytest.MonkeyPatch, phases: int
) -> None:
    """It holds the state from before the step; after the update, which has moved the weights, it waits for the step's end.

    Then the engine is killed while it waits: nothing is tidied up, what waited stays until the run goes on from that checkpoint.
    """
    run_dir = make_run(engine={"checkpoint_every": 0})

    def killed() -> None:
        raise KeyboardInterrupt

    after = ["step", *["phase"] * 3] if phases == 5 else []  # to the end of step 2, and into step 3
    with monkeypatch.context() as patch:
        at_each_wait(patch, answers(run_dir, "step", *["phase"] * phases, "checkpoint", *after, killed))
        patch.setattr(control.Control, "before_step", paused_at_first(run_dir, control.Control.before_step))
        with pytest.raises(KeyboardInterrupt):
            run_engine(run_dir, "train")
    reader = RunReader(run_dir)
    written = 2 if phases == 5 else 1
    assert [point.step for point in reader.checkpoints()] == [written]
    texts = [event.text for event in reader.events_since(0) if "will be written" in event.text]
    assert texts == (["The checkpoint will be written when step 2 is done."] if phases == 5 else [])
    waiting = "reference" if phases == 5 else "advantages"
    assert (reader.status().state, reader.status().step, reader.scratch().phase) == ("interrupted", written, waiting)
    assert run_engine(run_dir, "resume") == DONE
    same(run_dir, whole)


def test_several_processes_are_not_stepped_through_by_phases(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The door refuses it where the settings say so, and the engine where only it knows."""
    run_dir = make_run(ppo={"steps": 1})
    monkeypatch.setattr(Ranks, "size", 2)
    at_each_wait(monkeypatch, answers(run_dir, "phase", "step"))
    with monkeypatch.context() as patch:
        patch.setattr(control.Control, "before_step", paused_at_first(run_dir, control.Control.before_step))
        patch.setattr(Ranks, "rows", lambda self, count: slice(0, count))
        assert run_engine(run_dir, "train") == DONE
    warnings = [event.text for event in RunReader(run_dir).events_since(0) if event.kind == "control"]
    assert len(warnings) == 1 and "needs a run of one process" in warnings[0]


# --- inside a step ------------------------------------------------------------------------------------------------------------------


def test_a_stop_inside_a_long_step_drops_it(make_run: Callable[..., Path], whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it samples, by a command, and in the middle of its update, by a signal: the resumed run is the same bit for bit."""
    run_dir, heard = make_run(), list[str]()
    monkeypatch.setattr(control, "LONG_STEP", 0.0)
    monkeypatch.setattr(control, "LOOK_SECONDS", 0.0)
    original = control.Control.inside_step
    stops = {
        (1, "Sampling: 3/6 tokens"): lambda: send_command(run_dir, "stop"),
        (2, "Update: pass 2/2, minibatch 1/2"): lambda: os.kill(os.getpid(), signal.SIGTERM),
    }

    def stopping(self: Any, doing: str) -> None:
        heard.append(doing)
        stops.pop((RunReader(run_dir).status().step, doing), lambda: None)()
        original(self, doing)

    monkeypatch.setattr(control.Control, "inside_step", stopping)
    for step, mode in ((1, "train"), (2, "resume")):
        heard.clear()
        assert run_engine(run_dir, mode) == STOPPED
        reader = RunReader(run_dir)
        assert (reader.status().state, reader.status().step, reader.checkpoints()[-1].step) == ("stopped", step, step)
        dropped = [event.text for event in reader.events_since(0) if "is dropped" in event.text]
        assert dropped[-1] == f"Step {step + 1} was under way and is dropped: a resume trains it again."
    assert heard[-1] == "Update: pass 2/2, minibatch 1/2", "nothing more was computed"
    assert run_engine(run_dir, "resume") == DONE
    same(run_dir, whole)


def test_a_step_says_how_far_it_is(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the run's state, where the Live page reads it; where weights are too many to be copied, an update goes on to its end."""
    run_dir, phases = make_run(ppo={"steps": 1}), list[str]()
    monkeypatch.setattr(control, "LONG_STEP", 0.0)
    monkeypatch.setattr(control, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr("rlhf_studio.engine.stages.ppo.MOST_COPIED", 0)
    original = control.Control.inside_step

    def noting(self: Any, doing: str) -> None:
        original(self, doing)
        phases.append(RunReader(run_dir).status().phase)
        if doing == "Update: pass 1/2, minibatch 1/2":
            send_command(run_dir, "stop")

    monkeypatch.setattr(control.Control, "inside_step", noting)
    assert run_engine(run_dir, "train") == DONE
    step = [f"Sampling: {drawn}/6 tokens" for drawn in range(1, 7)]
    step += ["Scoring", "Reference pass", *(f"Update: pass {epoch}/2, minibatch {number}/2" for epoch in (1, 2) for number in (1, 2))]
    assert [phase for phase in step if phase in phases] == step and phases[: phases.index("Scoring")] == step[: step.index("Scoring")]
    assert RunReader(run_dir).status().phase == ""
