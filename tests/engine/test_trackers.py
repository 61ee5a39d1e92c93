"""Reporting to trackers: TensorBoard's files read back by its own reader; exact calls of the others on stand-in modules."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, parse_config
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process.trackers import COLUMNS, TrackedRun, Trackers, flat_settings
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE, STOPPED
from rlhf_studio.inputs.checks import trackers as tracker_checks
from rlhf_studio.inputs.checks.trackers import tracker_problems
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StepRecord, WatchRecord
from tests.engine.conftest import small_config

needs_tensorboard = pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
WATCHED = [WatchRecord(0, "the film", " was **good**", 1.5, 0.25), WatchRecord(1, "a", "b", -2.0, None)]


def tracked(folder: Path, resumed_at: int | None = None, **config: Any) -> TrackedRun:
    return TrackedRun.of(folder, parse_config(config), resumed_at)


class Calls(list):
    """Notes every call of an object tree: ``calls.stand_in("wandb")`` gives a module whose every attribute can be called."""

    def stand_in(self, name: str) -> Any:
        calls = self

        class Recorder:
            def __init__(self, path: str):
                self.path = path
                self.__spec__ = object()  # find_spec asks modules that are loaded for it

            def __getattr__(self, part: str) -> Any:
                if part.startswith("__"):
                    raise AttributeError(part)
                return Recorder(f"{self.path}.{part}")

            def __call__(self, *args: Any, **keywords: Any) -> Any:
                calls.append((self.path, args, keywords))
                return Recorder(f"{self.path}()")

        return Recorder(name)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    recorded = Calls()
    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, recorded.stand_in(name))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return recorded


# --- what is reported ----------------------------------------------------------------------------------------------------------


def test_settings_are_flat_and_plain() -> None:
    flat = flat_settings(parse_config({"name": "mine", "ppo": {"kl_coef": 0.25}, "reward": {"components": [{"kind": "length"}]}}))
    assert (flat["name"], flat["ppo.kl_coef"], flat["lora.enabled"]) == ("mine", 0.25, False)
    assert json.loads(flat["reward.components"])[0]["kind"] == "length"
    assert all(isinstance(value, str | int | float | bool) for value in flat.values())


def test_wandb_calls(calls: Calls, tmp_path: Path) -> None:
    run = tracked(tmp_path / "run-1", name="mine")
    trackers = Trackers(["wandb"], run, pytest.fail)
    trackers.watched(0, WATCHED[:1])
    trackers.step(StepRecord(1, {"objective/kl": 0.5, "loss/policy_avg": math.nan}, [], WATCHED))
    trackers.close()
    trackers.close()
    rows = [[1, "the film", " was **good**", 1.5, 0.25], [1, "a", "b", -2.0, None]]
    start = {"project": "rlhf-studio", "id": "run-1", "name": "mine", "dir": str(tmp_path / "run-1"), "config": run.settings}
    table = ("wandb.Table", (), {"columns": COLUMNS, "data": rows})
    assert calls[:3] == [
        ("wandb.init", (), {**start, "resume": "allow"}),
        ("wandb.init().define_metric", ("step",), {}),
        ("wandb.init().define_metric", ("*",), {"step_metric": "step"}),
    ]
    assert calls[3] == ("wandb.Table", (), {"columns": COLUMNS, "data": [[0, "the film", " was **good**", 1.5, 0.25]]})
    assert calls[4][0] == "wandb.init().log" and calls[4][1][0]["step"] == 0 and set(calls[4][1][0]) == {"step", "watched"}
    assert calls[5] == ("wandb.init().log", ({"step": 1, "objective/kl": 0.5},), {})  # NaN is left out
    assert calls[6] == table
    assert calls[7][1][0]["step"] == 1
    assert calls[8:] == [("wandb.init().finish", (), {})]


def test_wandb_projects_can_be_named_outside(calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "other")
    Trackers(["wandb"], tracked(tmp_path), pytest.fail)
    assert calls[0][2]["project"] == "other" and calls[0][2]["name"] == tmp_path.name


def test_trackio_calls(calls: Calls, tmp_path: Path) -> None:
    run = tracked(tmp_path / "run-1", name="mine")
    trackers = Trackers(["trackio"], run, pytest.fail)
    trackers.step(StepRecord(7, {"objective/kl": 0.5}, [], WATCHED))
    trackers.close()
    settings = {"title": "mine", **run.settings}
    start = {"project": "rlhf-studio", "name": "run-1", "config": settings, "resume": "allow", "embed": False}
    assert calls[:2] == [("trackio.init", (), start), ("trackio.init().log", ({"objective/kl": 0.5},), {"step": 7})]
    assert calls[2][0] == "trackio.Table" and list(calls[2][2]["dataframe"].columns) == COLUMNS
    assert calls[2][2]["dataframe"]["response"].tolist() == [" was **good**", "b"]
    assert calls[3][0] == "trackio.init().log" and calls[3][2] == {"step": 7} and set(calls[3][1][0]) == {"watched"}
    assert calls[4:] == [("trackio.init().finish", (), {})]


# --- failures ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["init", "log", "finish"])
def test_a_failing_tracker_becomes_one_warning(calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no\nnetwork " + "x" * 1000)

    working = SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)
    broken = SimpleNamespace(**{**vars(working), where: fail}) if where != "init" else working
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(init=fail if where == "init" else lambda **_: broken))
    events: list[EventRecord] = []
    trackers = Trackers(["trackio", "wandb"], tracked(tmp_path), events.append)
    for step in (1, 2):
        trackers.step(StepRecord(step, {"lr": 0.1}, []))
    trackers.close()
    assert [(event.level, event.kind) for event in events] == [("warning", "tracker")]
    assert events[0].text.startswith("Reporting to trackio has ended (RuntimeError: no network xxx") and len(events[0].text) < 420
    assert [args[0]["step"] for path, args, _ in calls if path == "wandb.init().log"] == [1, 2]  # the other one goes on
    assert calls[-1][0] == "wandb.init().finish"


# --- the setting and the door ------------------------------------------------------------------------------------------------------


def test_the_list_of_trackers() -> None:
    assert RunConfig().engine.trackers == []
    engine = parse_config({"engine": {"report_to": " wandb ,tensorboard,, wandb"}}).engine
    assert engine.trackers == ["wandb", "tensorboard"]
    with pytest.raises(ConfigError) as caught:
        parse_config({"engine": {"report_to": "mlflow"}})
    assert str(caught.value) == "engine.report_to: there is no tracker 'mlflow'; there are: trackio, tensorboard, wandb"


def test_a_missing_package_is_a_problem_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse_config({"engine": {"report_to": "wandb, tensorboard"}})
    monkeypatch.setattr(tracker_checks, "find_spec", lambda name: None if name == "wandb" else object())
    (problem,) = tracker_problems(config)
    assert (problem.field, problem.message) == ("engine.report_to", "wandb is not installed: pip install wandb; or take it out of the list")
    assert list(tracker_problems(RunConfig())) == []


# --- whole runs ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    def make(report_to: str) -> Path:
        engine = {"checkpoint_every": 2, "report_to": report_to, "watch_prompts": 2, "watch_every": 2}
        create_run(tmp_path / "run", small_config(tmp_path, ppo={"steps": 4, "ppo_epochs": 1}, engine=engine), name="run", state="loading")
        return tmp_path / "run"

    return make


@needs_tensorboard
def test_tensorboard_reads_a_run_that_was_interrupted_and_resumed(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after step 3 without its checkpoint of step 3: the resumed run repeats steps 3 and 4, and each counts once."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_dir = make_run("tensorboard")
    original = Trainer.step

    def stepped(trainer: Trainer) -> StepRecord:
        record = original(trainer)
        if record.step == 3:
            send_command(run_dir, "stop")
        return record

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stepped)
        assert run_engine(run_dir, "train") == STOPPED
    for path in (run_dir / "checkpoints").glob("step-000003/manifest.json"):
        path.write_text("damaged")
    assert run_engine(run_dir, "resume") == DONE
    reader = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    stored = dict(RunReader(run_dir).metrics_since(0, limit=10))
    kl = reader.Scalars("objective/kl")
    assert [event.step for event in kl] == [1, 2, 3, 4]
    assert [event.value for event in kl] == pytest.approx([stored[step]["objective/kl"] for step in (1, 2, 3, 4)])
    assert set(reader.Tags()["scalars"]) == {name for name, value in stored[4].items() if value is not None}
    assert "ppo.kl_coef: 0.1" in reader.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    answers = reader.Tensors("watched/0/text_summary")
    assert [event.step for event in answers] == [0, 2, 4]
    (shown,) = [record for step, record in RunReader(run_dir).watched() if (step, record.sample) == (4, 0)]
    text = answers[-1].tensor_proto.string_val[0].decode()
    assert text.startswith("    ") and f"{shown.prompt}{shown.response}" in text


def test_a_run_outlives_its_tracker(make_run: Callable[..., Path], calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> Any:
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=fail, __spec__=object()))
    run_dir = make_run("wandb, trackio")
    assert run_engine(run_dir, "train") == DONE
    warnings = [event.text for event in RunReader(run_dir).events_since(0) if event.kind == "tracker"]
    assert warnings == ["Reporting to wandb has ended (ConnectionError: no network). The run goes on; everything is in the run folder."]
    steps = [keywords["step"] for path, _, keywords in calls if path == "trackio.init().log"]
    assert steps == [0, 1, 2, 2, 3, 4, 4]  # metrics of each step, and the watched answers
    assert calls[-1][0] == "trackio.init().finish"
