"""A recorded step computed again: with its own settings it is what was recorded, with others what the engine would have computed."""

from __future__ import annotations

import math
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import config_to_yaml
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.types import Rollout, StepSoFar
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.what_if import CannotAsk, Settings, recompute, recorded
from rlhf_studio.ppo.advantages import estimate_advantages
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.ppo.rewards import shape_rewards
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.paths import CONFIG
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import RunWriter
from tests.engine.conftest import small_config

STEP = 2
QUANTITIES = ("kl", "rewards", "deltas", "advantages", "whitened_advantages", "returns", "ratio", "clipped")


def made(folder: Path, **changes: dict[str, Any]) -> tuple[RunReader, Rollout]:
    """A run on random models, as the store keeps it, until the policy is no longer the reference; and the engine's own last rollout."""
    config = small_config(folder, **changes)
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    rollouts: list[Rollout] = []

    def after_phase(phase: str, so_far: StepSoFar) -> None:
        if phase == "advantages" and so_far.rollout is not None:
            rollouts.append(so_far.rollout)

    trainer.after_phase = after_phase
    create_run(folder / "run", config, name="")
    with RunWriter(folder / "run") as writer:
        for _ in range(STEP):
            writer.commit_step(trainer.step())
    return RunReader(folder / "run"), rollouts[-1]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunReader, Rollout]:
    """With the settings as they are; read it, and change nothing."""
    return made(tmp_path_factory.mktemp("plain"))


def test_a_hundred_recorded_rollouts_come_out_as_they_were_recorded(run: LessonRun) -> None:
    on_record = [(step, sample) for step in range(1, run.steps + 1) for sample in range(4)]
    for step, sample in random.Random(0).sample(on_record, 100):
        tokens = run.reader.rollout(step, sample).tokens
        assert tokens is not None
        again = recompute(run.recorded(step)).of_episode(sample)
        for name in QUANTITIES:
            assert np.abs(np.array(again[name]) - tokens.arrays[name]).max() <= 1e-5, f"{name} of step {step}, response {sample}"


@pytest.mark.parametrize(
    "changes",
    [
        {"kl_estimator": "k3", "whiten_rewards": True, "cliprange_high": 0.4},
        {"kl_estimator": "full", "whiten_advantages": False, "kl_controller": "adaptive", "kl_horizon": 10},
        {"kl_estimator": "k2", "kl_placement": "loss", "dual_clip": 1.5},
    ],
)
def test_any_run_comes_out_as_it_was_recorded(tmp_path: Path, changes: dict[str, Any]) -> None:
    reader, _ = made(tmp_path, ppo=changes)
    again = recompute(recorded(reader, STEP))
    assert again.last_pass.tolist() == [True] * 3 + [False] * 5  # of the others no run keeps the last pass
    for sample in range(3):
        tokens, numbers = reader.rollout(STEP, sample).tokens, again.of_episode(sample)
        assert tokens is not None
        for name in QUANTITIES:
            assert np.abs(np.array(numbers[name]) - tokens.arrays[name]).max() <= 1e-5, name
    assert again.of_episode(5)["ratio"] is None
    assert again.of_episode(5)["returns"] is not None


def test_other_settings_give_what_the_engine_s_phases_give(plain: tuple[RunReader, Rollout]) -> None:
    reader, rollout = plain
    of = recorded(reader, STEP)
    mask, width, before = rollout.tokens.mask, of.mask.shape[1], recompute(of)
    assert torch.equal(of.mask, mask[:, :width])
    for change in (
        {"gamma": 0.9}, {"lam": 0.0}, {"lam": 1.0, "gamma": 0.5}, {"kl_coef": 0.7}, {"kl_estimator": "k3"}, {"whiten_rewards": True}
    ):  # fmt: skip
        other = replace(of.settings, **change)
        kl = kl_per_token(rollout.logprobs, rollout.ref_logprobs, other.kl_estimator)
        rewards = shape_rewards(kl, rollout.scores.shaped, mask, other.kl_coef, unit_variance=other.whiten_rewards)
        engine = estimate_advantages(rewards, rollout.values, mask, other.gamma, other.lam, whitening=other.whiten_advantages)
        recomputed = recompute(of, other)
        assert torch.allclose(recomputed.rewards.float(), rewards[:, :width], atol=1e-5), change
        for name in ("advantages", "returns", "deltas"):
            assert torch.allclose(getattr(recomputed, name).float(), getattr(engine, name)[:, :width], atol=1e-5), (change, name)
        assert torch.allclose(recomputed.whitened_advantages.float(), engine.whitened[:, :width], atol=1e-5), change
        assert not torch.allclose(recomputed.whitened_advantages, before.whitened_advantages, atol=1e-4), change


def test_a_step_that_the_engine_plays_with_other_settings_is_what_was_foreseen(plain: tuple[RunReader, Rollout], tmp_path: Path) -> None:
    reader, _ = plain
    of = recorded(reader, STEP)
    recomputed = recompute(of, replace(of.settings, gamma=0.8, lam=0.5, kl_coef=0.4))
    config, other = small_config(tmp_path), small_config(tmp_path, ppo={"gamma": 0.8, "lam": 0.5})
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    for _ in range(STEP - 1):  # the same seed: the same responses
        trainer.step()
    trainer.config, trainer.controller.coef = other, 0.4
    for record in trainer.step().rollouts:
        assert record.tokens is not None
        for name in ("rewards", "advantages", "whitened_advantages", "returns"):
            assert np.abs(np.array(recomputed.of_episode(record.sample)[name]) - record.tokens.arrays[name]).max() <= 1e-5, name


def test_another_score_moves_its_own_reward_and_everybody_s_whitening(run: LessonRun) -> None:
    of = run.recorded(3)
    before, after = recompute(of), recompute(of, scores={2: float(of.scores[2]) + 5})
    change = after.rewards - before.rewards
    last = int(of.mask[2].sum()) - 1
    assert change[2, last].item() == pytest.approx(5)
    change[2, last] = 0
    assert change.abs().max() == 0
    assert torch.equal(after.advantages[0], before.advantages[0])
    assert not torch.allclose(after.whitened_advantages[0], before.whitened_advantages[0])


def test_the_loss_of_a_token_by_hand(run: LessonRun) -> None:
    of = run.recorded(10)
    again, narrow = recompute(of), recompute(of, replace(of.settings, cliprange=0.01))
    for actual, eps in ((again, 0.2), (narrow, 0.01)):
        for row in range(0, 64, 9):
            for index in range(int(of.mask[row].sum())):
                ratio = math.exp(of.new_logprobs[row, index] - of.logprobs[row, index])
                advantage = actual.whitened_advantages[row, index].item()
                by_hand = max(-advantage * ratio, -advantage * min(max(ratio, 1 - eps), 1 + eps))
                assert actual.policy_loss[row, index].item() == pytest.approx(by_hand, abs=1e-9)
    assert narrow.clipped.sum() > again.clipped.sum() > 0


def test_what_cannot_be_computed_again_says_why(plain: tuple[RunReader, Rollout]) -> None:
    reader, _ = plain
    with pytest.raises(CannotAsk, match="exact KL"):
        recompute(recorded(reader, STEP), replace(recorded(reader, STEP).settings, kl_estimator="full"))
    with pytest.raises(CannotAsk, match="no record of all its responses"):
        recorded(reader, 7)


def test_settings_that_have_changed_since_are_noticed(plain: tuple[RunReader, Rollout], tmp_path: Path) -> None:
    reader = RunReader(shutil.copytree(plain[0].run_dir, tmp_path / "run"))
    config = reader.config()
    assert isinstance(config, RunConfig)
    changed = config.model_copy(update={"ppo": config.ppo.model_copy(update={"whiten_advantages": False})})
    (reader.run_dir / CONFIG).write_text(config_to_yaml(changed))
    with pytest.raises(CannotAsk, match="changed since"):
        recorded(reader, STEP)


def test_settings_are_named_as_in_the_configuration() -> None:
    assert Settings.of(RunConfig().ppo, 0.3).kl_coef == 0.3
