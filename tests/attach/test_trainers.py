"""Watching trainers: nothing about the training changes, and what is recorded is what the trainer had."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import Trainer, TrainerCallback

from rlhf_studio.attach import Studio, recording
from rlhf_studio.attach.online import Online
from rlhf_studio.runs import paths
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import RunWriter
from tests.attach.stand_in import only_run, trainer, weights
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer that has trained without a recording."""
    alone = trainer(tmp_path_factory.mktemp("plain"))
    alone.train()
    return alone


def test_a_watched_trainer_has_the_same_weights_and_its_numbers_are_in_the_store(tmp_path: Path, plain: Any) -> None:
    watched = trainer(tmp_path / "watched")
    Studio(run="watched", workspace=tmp_path).watch(watched)
    watched.train()
    called_back = trainer(tmp_path / "called back")
    called_back.add_callback(Studio(run="called back", workspace=tmp_path / "second"))
    called_back.train()
    assert weights(watched.model) == weights(called_back.model) == weights(plain.model)
    assert [log["loss"] for log in watched.state.log_history[:-1]] == [log["loss"] for log in plain.state.log_history[:-1]]
    assert "training_step" not in vars(Trainer) or Trainer.training_step.__name__ == "training_step"

    for ours, theirs in ((only_run(tmp_path), watched), (only_run(tmp_path / "second"), called_back)):
        assert ours.status().state == "finished"
        assert ours.origin().controls == ["stop", "checkpoint"]
        assert ours.config().ppo.advantage == "grpo" and ours.origin().reward == "1 × length + 0.5 × letters"
        assert "ppo.kl_coef" in ours.origin().settings_given
        assert ours.status().step == len(theirs.seen) == 3
        for step, seen in enumerate(theirs.seen, 1):
            _is_recorded(ours, step, seen)


def _is_recorded(reader: RunReader, step: int, seen: dict[str, Any]) -> None:
    by_ids = {tuple(ids.tolist()): logprobs for all_ids, table in seen["passes"] for ids, logprobs in zip(all_ids, table, strict=True)}
    metrics = dict(reader.metrics_since(0))[step]
    total = np.nansum(seen["rewards"].numpy() * [1.0, 0.5], axis=1)
    assert metrics["objective/scores"] == pytest.approx(total.mean())
    assert metrics["lr"] > 0 and "loss/policy_avg" in metrics
    for row, ids in enumerate(seen["ids"]):
        record = reader.rollout(step, row)
        assert record.tokens is not None
        arrays = record.tokens.arrays
        assert record.tokens.response_ids.tolist() == ids
        assert record.stopped == (ids[-1] == 1)
        assert record.parts["length"] == len(ids) and ("letters" in record.parts) == (len(ids) > 1)
        assert record.score == pytest.approx(total[row])
        assert arrays["advantages"].tolist() == [float(seen["advantages"][row])] * len(ids)
        assert arrays["ref_logprobs"].tolist() == seen["reference"][row, : len(ids)].tolist()
        padded = (*seen["prompts"][row], *ids, *[0] * (4 - len(ids)))
        assert arrays["logprobs"].tolist() == by_ids[padded][: len(ids)].tolist()
        assert "".join(record.tokens.response_pieces) == record.response
        assert "rewards" not in arrays and "values" not in arrays  # nobody knows them: not drawn as zero
        assert record.kl == pytest.approx(float(np.sum(arrays["logprobs"] - arrays["ref_logprobs"])))


class LogsFirst(TrainerCallback):
    """What is logged before the first step, as by an evaluation before training."""

    def __init__(self, log: Callable[[], None]):
        self._log = log

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._log()


def test_several_optimizer_steps_of_a_generation_are_one_step_of_the_run(tmp_path: Path) -> None:
    watched = trainer(tmp_path / "out", steps=6, gradient_accumulation_steps=1, warmup_steps=3)
    log = watched.log
    told = [
        {"entropy": 1.0, "clip_ratio/low_min": 0.5, "rewards/max_words/mean": 0.2},
        {"entropy": 4.0, "clip_ratio/low_min": 0.25, "rewards/max_words/mean": 0.8, "num_tokens": 7.0},
    ]
    watched.log = lambda logs, *more: log({**logs, **told[watched.state.global_step % 2 - 1]}, *more)
    Studio(workspace=tmp_path).watch(watched)
    watched.add_callback(LogsFirst(lambda: log({"entropy": 9.0})))
    watched.train()
    reader = only_run(tmp_path)
    assert any("Before the first step: policy/entropy_avg 9" in event.text for event in reader.events_since(0))
    assert (reader.status().step, reader.status().total_steps, reader.config().ppo.warmup_steps) == (3, 3, 2)  # of 6, 6 and 3
    for step, own in reader.metrics_since(0):
        first, second = watched.state.log_history[2 * step - 1 : 2 * step + 1]
        assert own["loss/policy_avg"] == pytest.approx((first["loss"] + second["loss"]) / 2)
        assert own["lr"] == second["learning_rate"] != first["learning_rate"] and own["train/epoch"] == second["epoch"]
        assert (own["policy/entropy_avg"], own["trainer/clip_ratio/low_min"], own["trainer/num_tokens"]) == (2.5, 0.25, 7.0)
        assert own["trainer/rewards/max_words/mean"] == pytest.approx(0.5)  # the name of a reward, not the end of a range


class AskAt(TrainerCallback):
    """A person who presses a button on the page at a step, and waits until the recording has heard of it."""

    def __init__(self, studio: Studio, kind: Any, at: int):
        self.studio, self.kind, self.at = studio, kind, at

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == self.at:
            own = self.studio._session.recording
            assert own is not None
            send_command(own.run_dir, self.kind)
            kind = "stop" if self.kind == "discard" else self.kind
            wait_until(lambda: own.asked(kind))


def test_stop_and_checkpoint_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LOOK_SECONDS", 0.01)
    watched, studio = trainer(tmp_path / "out", steps=6), Studio(workspace=tmp_path)
    watched.add_callback(AskAt(studio, "checkpoint", 1))
    watched.add_callback(AskAt(studio, "discard", 3))
    studio.watch(watched).watch(watched)
    watched.train()
    reader = only_run(tmp_path)
    assert watched.state.global_step == reader.status().step == 4
    assert reader.status().state == "stopped"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["checkpoint-2"]
    assert [event.kind for event in reader.events_since(0) if event.kind in ("checkpoint", "stop")] == ["checkpoint", "stop"]


def test_a_failure_of_the_recording_is_one_warning_and_no_more(
    tmp_path: Path, plain: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: RunWriter, record: Any) -> None:
        raise StoreError("The disk is full.", "full")

    for number, name in enumerate(["commit_step", "a bug", "folder"]):
        watched, workspace = trainer(tmp_path / name), tmp_path / f"workspace {number}"
        caplog.clear()
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "rlhf_studio.attach"):
            if name == "commit_step":
                patch.setattr(RunWriter, name, full)
            if name == "a bug":
                patch.setattr(Online, "_after_rewards", None)
            if name == "folder":
                workspace.write_text("a file where the workspace should be")
            Studio(workspace=workspace).watch(watched)
            watched.train()
        assert weights(watched.model) == weights(plain.model), name
        assert len([record for record in caplog.records if record.name == "rlhf_studio.attach"]) == 1, name
        if name != "folder":
            status = only_run(workspace).status()
            assert status.state == "failed" and "The recording ended" in status.cause


def test_an_error_of_the_training_is_the_runs_cause(tmp_path: Path) -> None:
    watched = trainer(tmp_path / "out")
    Studio(workspace=tmp_path).watch(watched)
    watched._compute_loss = None
    with pytest.raises(TypeError):
        watched.train()
    status = only_run(tmp_path).status()
    assert status.state == "failed" and "TypeError" in status.cause


def test_no_secret_of_a_trainer_is_stored_at_any_depth(tmp_path: Path) -> None:
    watched = trainer(tmp_path / "out", steps=1)
    secrets = {"token": "s3cret", "quantization": {"apiKey": "s3cret", "bits": 4}, "headers": [{"Authorization": "Bearer s3cret"}]}
    own = {"model_init_kwargs": secrets, "api_key": "s3cret", "db_passwords": ["s3cret"], "hub": SimpleNamespace(hub_token="s3cret", n=7)}
    left = {"eos_token": "<end>", "max_tokens": 512, "add_special_tokens": False, "tokenizer_name": "letters"}
    watched.args.to_dict = lambda: {**own, **left}
    Studio(workspace=tmp_path).watch(watched)
    watched.train()
    text = (only_run(tmp_path).run_dir / paths.TRAINER).read_text()
    args = json.loads(text)["args"]
    assert "s3cret" not in text
    assert args["model_init_kwargs"]["quantization"] == {"bits": 4} and "n=7" in args["hub"]
    assert {name: args[name] for name in left} == left


def test_a_full_disk_is_named_also_where_the_runs_state_cannot_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_state = RunWriter.set_state

    def full(self: RunWriter, *given: Any, **more: Any) -> None:
        raise StoreError("The disk is full.", "full")

    def full_at_the_end(self: RunWriter, state: Any, *given: Any, **more: Any) -> None:
        (full if state == "failed" else set_state)(self, state, *given, **more)

    for name, patched in (("at a step", full_at_the_end), ("at once", full)):
        monkeypatch.setattr(RunWriter, "set_state", patched)
        monkeypatch.setattr(RunWriter, "commit_step", full)
        with Studio(workspace=tmp_path / name) as studio:
            studio.step(metrics={"lr": 1.0})
        status = only_run(tmp_path / name).status()
        assert status.state == "interrupted", name
        assert status.cause == "The recording ended: The disk is full. The training goes on without it.", name
