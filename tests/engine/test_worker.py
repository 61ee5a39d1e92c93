"""The engine process: every way a run can end leaves a state, a cause and a store that opens."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from rlhf_studio.cli.engine import stop
from rlhf_studio.cli.main import main
from rlhf_studio.engine.loop.minibatch import MinibatchGradients
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process import control, stopping, worker
from rlhf_studio.engine.process.stopping import Signals
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.stages import ppo
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED, STOPPED
from rlhf_studio.runs import commands
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from tests.engine.conftest import small_config

pytestmark = pytest.mark.slow


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "run", **changes: dict[str, Any]) -> Path:
        config = small_config(tmp_path, **{"ppo": {"steps": 4}, "engine": {"checkpoint_every": 2}, **changes})
        create_run(tmp_path / name, config, name=name, state="loading")
        return tmp_path / name

    return make


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, action: Callable[[], Any]) -> None:
    """Do something right after this step was computed."""
    original = Trainer.step

    def stepped(trainer: Trainer) -> StepRecord:
        record = original(trainer)
        if record.step == step:
            action()
        return record

    monkeypatch.setattr(Trainer, "step", stepped)


def kinds(run_dir: Path) -> list[str]:
    return [event.kind for event in RunReader(run_dir).events_since(0)]


@pytest.mark.usefixtures("checked")
def test_a_whole_run(make_run: Callable[..., Path]) -> None:
    run_dir = make_run(engine={"checkpoint_every": 2, "watch_prompts": 2})
    assert run_engine(run_dir, "train") == DONE
    reader = RunReader(run_dir)
    status = reader.status()
    assert (status.state, status.step, status.total_steps, status.cause) == ("finished", 4, 4, "")
    assert "cpu" in status.device
    assert [step for step, _ in reader.metrics_since(0)] == [1, 2, 3, 4]
    assert [step for step, _ in reader.watched()] == sorted([0, 1, 2, 3, 4] * 2)
    assert [checkpoint.step for checkpoint in reader.checkpoints()] == [2, 4]
    assert "checkpoint" in kinds(run_dir)


def test_a_signal_means_checkpoint_and_leave(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = make_run()
    at_step(monkeypatch, 3, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert run_engine(run_dir, "train") == STOPPED
    status = RunReader(run_dir).status()
    assert (status.state, status.step) == ("stopped", 3)
    assert RunReader(run_dir).checkpoints()[-1].step == 3


def test_discard_stops_without_a_checkpoint(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was recorded stays. The command line asks for it, and not together with force."""
    run_dir, said = make_run(), []
    at_step(monkeypatch, 3, lambda: said.append(stop(run_dir, now=False, discard=True)))
    assert run_engine(run_dir, "train") == STOPPED
    reader = RunReader(run_dir)
    assert (reader.status().state, reader.status().step, [point.step for point in reader.checkpoints()]) == ("stopped", 3, [2])
    assert [event.text for event in reader.events_since(0) if event.kind == "stop"] == ["Stopped: asked by an operator, without saving."]
    assert said == [f"asked to stop, without a checkpoint. If it does not end: stop {run_dir} --now"]
    assert main(["stop", str(run_dir), "--discard", "--now"]) == BAD_INPUT
    monkeypatch.undo()
    assert run_engine(run_dir, "resume") == DONE
    assert [event.text for event in reader.events_since(0) if event.kind == "resume"] == ["Resumed from the checkpoint of step 2."]


def test_bad_input_found_while_loading(make_run: Callable[..., Path]) -> None:
    run_dir = make_run(lora={"enabled": True, "target_modules": "no_such_layer"})
    assert run_engine(run_dir, "train") == BAD_INPUT
    status = RunReader(run_dir).status()
    assert status.state == "failed" and status.cause.startswith("lora.target_modules:")


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    original = MinibatchGradients.backward

    def poisoned(self: MinibatchGradients, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        self.parameters[0].grad[...] = math.nan
        return result

    monkeypatch.setattr(MinibatchGradients, "backward", poisoned)


def test_non_finite_gradient_stops_before_the_step(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = make_run()
    poison(monkeypatch)
    assert run_engine(run_dir, "train") == FAILED
    assert "gradient norm is not finite" in RunReader(run_dir).status().cause


def test_non_finite_gradient_can_be_skipped(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = make_run(engine={"non_finite": "skip"}, ppo={"steps": 2, "ppo_epochs": 1, "batch_size": 8, "mini_batch_size": 8})
    poison(monkeypatch)
    assert run_engine(run_dir, "train") == DONE
    assert kinds(run_dir).count("skip") == 2
    assert RunReader(run_dir).non_finite() != []  # the missing gradient norm is kept as a flag


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "ppo.micro_batch_size"),
        (ZeroDivisionError("surprise"), "ZeroDivisionError: surprise"),
    ],
)
def test_an_error_in_a_step_is_on_record(
    make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, error: Exception, cause: str
) -> None:
    run_dir = make_run()

    def explode() -> None:
        raise error

    at_step(monkeypatch, 1, explode)
    assert run_engine(run_dir, "train") == FAILED
    assert cause in RunReader(run_dir).status().cause


def test_notes_for_people(make_run: Callable[..., Path]) -> None:
    run_dir = make_run(ppo={"steps": 1, "batch_size": 64, "mini_batch_size": 64}, generation={"top_k": 3})
    assert run_engine(run_dir, "train") == DONE
    events = RunReader(run_dir).events_since(0)
    assert "6 prompts for a batch of 64" in " ".join(event.text for event in events if event.kind == "health")
    assert [event.text.split(",")[0] for event in events if event.level == "warning"] == ["Sampling is cut off (top-k 3)"]


def test_full_disk_keeps_what_was_there(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = make_run()
    original = ppo.save_checkpoint

    def full(folder: Path, step: int, *arguments: Any) -> Path:
        if step == 4:
            raise OSError(28, "No space left on device")
        return original(folder, step, *arguments)

    monkeypatch.setattr(ppo, "save_checkpoint", full)
    assert run_engine(run_dir, "train") == FAILED
    assert "No space left on device" in RunReader(run_dir).status().cause
    assert [checkpoint.step for checkpoint in RunReader(run_dir).checkpoints()] == [2]


# --- requests that come while a run is loading, twice, or in a form that nobody knows ---------------------------------------------


def while_loading(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    original = worker.choose_compute

    def interrupted(config: Any) -> Any:
        action()
        return original(config)

    monkeypatch.setattr(worker, "choose_compute", interrupted)


def test_a_pause_while_loading_takes_effect_before_the_first_step(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = make_run(ppo={"steps": 1})
    while_loading(monkeypatch, lambda: send_command(run_dir, "pause"))
    recorded: list[tuple[str, int]] = []

    def woken(seconds: float) -> None:
        recorded.append((RunReader(run_dir).status().state, RunReader(run_dir).status().step))
        send_command(run_dir, "continue")

    monkeypatch.setattr(control, "sleep", woken)
    assert run_engine(run_dir, "train") == DONE
    assert recorded == [("paused", 0)]


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Signals():
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] != before
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_second_signal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, Any]] = []
    monkeypatch.setattr(stopping.signal, "raise_signal", lambda number: raised.append((number, signal.getsignal(number))))
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == "signal SIGINT" and raised == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert raised == [(signal.SIGTERM, signal.SIG_DFL)]  # the system's own way: the process ends


def test_an_unknown_request_is_answered(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer app may know more than this engine."""
    run_dir = make_run(ppo={"steps": 1})
    monkeypatch.setattr(commands, "CommandKind", Literal["dance"])
    while_loading(monkeypatch, lambda: send_command(run_dir, "dance"))  # type: ignore[arg-type]
    assert run_engine(run_dir, "train") == DONE
    with sqlite3.connect(run_dir / "run.db") as connection:
        assert connection.execute("SELECT kind, outcome FROM commands").fetchall() == [("dance", "unknown command")]
    connection.close()
