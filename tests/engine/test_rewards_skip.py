"""When responses cannot be scored: the run stops with the cause, or leaves the update out, at most so many times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_studio.config import permissions_from_flags
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.recording import skips
from rlhf_studio.engine.rewards.scorer import RewardError, Scorer
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.runs.checkpoints import newest_valid
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config

LENGTH = {"components": [{"kind": "length"}], "scaling": "normalise"}


def break_scoring(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, broken: Callable[[int], bool]) -> None:
    """Make the scorer fail whenever ``broken(number of the call, from 1)``."""
    component = trainer.models.scorer.components[0]
    calls = iter(range(1, 1000))

    def source(episodes: Any) -> Any:
        if broken(next(calls)):
            raise RewardError("reward component length: no luck")
        return working(episodes)

    working = component.source
    monkeypatch.setattr(trainer.models.scorer, "components", [type(component)(component.name, component.weight, source)])


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.models.policy.parameters()]


def test_skip_leaves_the_update_out_and_goes_on(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(reward=LENGTH, engine={"non_finite": "skip", "watch_every": 100}, ppo={"steps": 9})
    break_scoring(trainer, monkeypatch, lambda call: call == 2)
    assert "objective/scores" in trainer.step().metrics
    before, moments, coefficient = weights(trainer), trainer.models.scorer.moments.state_dict(), trainer.controller.coef
    record = trainer.step()
    assert (record.step, record.rollouts, record.watched) == (2, [], [])
    assert [event.text for event in record.events] == ["This update was left out: reward component length: no luck."]
    assert record.metrics["episode"] == 16.0 and not any(name.startswith(("objective/", "speed/")) for name in record.metrics)
    assert all(torch.equal(old, new) for old, new in zip(before, weights(trainer), strict=True))
    assert trainer.models.scorer.moments.state_dict() == moments and trainer.controller.coef == coefficient
    assert "objective/scores" in trainer.step().metrics and trainer.skips.count == 1


def test_what_is_counted_are_steps_not_minibatches(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    """With every gradient spoiled, each step leaves out all its minibatches; it is the third step that is one too many."""
    monkeypatch.setattr(skips, "MOST_SKIPS", 2)
    trainer = make_trainer(reward=LENGTH, engine={"non_finite": "skip", "watch_every": 100}, ppo={"steps": 9})
    monkeypatch.setattr(trainer.updater, "_problem", lambda *_: "the policy loss is not finite (nan)")
    for count in (1, 2):
        assert trainer.step().events[0].text == "4 minibatches were left out: the policy loss is not finite (nan)."
        assert trainer.skips.count == count
    with pytest.raises(NonFiniteError, match="2 such failures were skipped before"):
        trainer.step()


def test_watched_prompts_that_cannot_be_scored(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(reward=LENGTH, engine={"non_finite": "skip", "watch_prompts": 2})
    break_scoring(trainer, monkeypatch, lambda call: call == 2)  # the first call scores the batch
    record = trainer.step()
    assert "objective/scores" in record.metrics and record.watched == []
    assert "watched prompts were left out: reward component length: no luck" in record.events[0].text
    assert len(trainer.step().watched) == 2
    stopping = make_trainer(reward=LENGTH, engine={"watch_prompts": 2})
    break_scoring(stopping, monkeypatch, lambda call: call == 2)
    with pytest.raises(RewardError):
        stopping.step()


def test_the_first_answers_to_the_watched_prompts_cannot_be_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rule is the same before the first step as at every other: stop with the cause, or leave them out and say so."""
    failing = iter(range(100))
    working = Scorer.parts

    def parts(scorer: Scorer, episodes: Any) -> Any:
        if next(failing) == 0:
            raise RewardError("reward component length: no luck")
        return working(scorer, episodes)

    monkeypatch.setattr(Scorer, "parts", parts)
    actual = {}
    for choice in ("stop", "skip"):
        failing, run_dir = iter(range(100)), tmp_path / choice
        config = small_config(tmp_path, reward=LENGTH, ppo={"steps": 1}, engine={"non_finite": choice, "watch_prompts": 2})
        create_run(run_dir, config, name="run", state="loading")
        actual[choice] = run_engine(run_dir, "train"), RunReader(run_dir).status()
    code, status = actual["stop"]
    assert (code, status.state) == (1, "failed")
    assert status.cause == "reward component length: no luck. There is no checkpoint yet: mend the cause and start again"
    code, status = actual["skip"]
    text = "The answers to the watched prompts were left out: reward component length: no luck."
    assert (code, status.state, status.step) == (0, "finished", 1)
    assert text in [event.text for event in RunReader(tmp_path / "skip").events_since(0)] and text in capsys.readouterr().out.splitlines()


FAILS_ONCE = """
import os
def score(prompts, responses, lengths, **extra):
    # the watched prompts are 2, a batch is 8; the second batch fails
    if len(prompts) == 8:
        open({path!r}, 'a').write('x')
        if os.path.getsize({path!r}) == 2:
            return [None] * 8
    return [float(length) for length in lengths]
"""


@pytest.mark.parametrize("choice", ["stop", "skip"])
def test_a_whole_run_with_a_function_that_fails_once(tmp_path: Path, choice: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FAILS_ONCE.format(path=str(tmp_path / "calls")))
    config = small_config(
        tmp_path,
        reward={"components": [{"kind": "python", "file": str(file)}]},
        ppo={"steps": 3},
        engine={"non_finite": choice, "checkpoint_every": 1},
    )
    run_dir = tmp_path / "run"
    create_run(run_dir, config, name="run", state="loading")
    code = run_engine(run_dir, "train", permissions=permissions_from_flags([str(file)], []))
    reader = RunReader(run_dir)
    status = reader.status()
    folder, problems = newest_valid(run_dir)
    assert folder is not None and problems == []
    if choice == "stop":
        assert (code, status.state, status.step) == (1, "failed", 1)
        assert status.cause.startswith("reward component python: it gave None, which is not a number for the prompt 'w")
        assert status.cause.endswith(". The checkpoint of step 1 is intact: mend the cause and resume")
        assert folder.name == "step-000001"
    else:
        assert (code, status.state, status.step) == (0, "finished", 3)
        assert any("This update was left out: reward component python: it gave None" in event.text for event in reader.events_since(0))
        assert folder.name == "step-000003"
