"""All episodes of a step, out of the store: enough to compute rewards, advantages, whitening and metrics again, here with numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.recording.records import Recorder
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepEpisodes
from rlhf_studio.runs.writer import RunWriter
from tests.engine.conftest import play

SETTINGS = {
    "ppo": {"gamma": 0.9, "lam": 0.8, "kl_coef": 0.3, "learning_rate": 3e-3},
    "generation": {"response_length": 6, "response_length_min": 2},
    "reward": {"gold": "world", "missing_eos_penalty": 0.5},
    "engine": {"record_samples": 5, "watch_every": 9},
}


def stored_steps(trainer: Trainer, folder: Path, steps: int) -> RunReader:
    create_run(folder, trainer.config, name="run", state="loading")
    with RunWriter(folder) as writer:
        for _ in range(steps):
            writer.commit_step(trainer.step())
    return RunReader(folder)


def advantages_of(episodes: StepEpisodes, kl: np.ndarray, gamma: float, lam: float, beta: float) -> tuple[np.ndarray, ...]:
    """Rewards, advantages and whitened advantages by token, from the formulas of the papers, in float64."""
    rewards, advantages, start = -beta * kl, np.zeros(len(kl)), 0
    for length, score in zip(episodes.lengths, episodes.scores, strict=True):
        end = start + length
        rewards[end - 1] += score
        values = [*episodes.tokens["values"][start:end].astype(float), 0.0]
        later = 0.0
        for index in reversed(range(length)):
            later = rewards[start + index] + gamma * values[index + 1] - values[index] + gamma * lam * later
            advantages[start + index] = later
        start = end
    return rewards, advantages, (advantages - advantages.mean()) / np.sqrt(advantages.var(ddof=1) + 1e-8)


@pytest.mark.parametrize("ppo", [{}, {"kl_estimator": "full"}], ids=["k1", "full"])
def test_the_store_gives_the_recorded_samples_and_the_metrics(
    make_trainer: Callable[..., Trainer], tmp_path: Path, ppo: dict[str, Any]
) -> None:
    trainer = make_trainer(**{**SETTINGS, "ppo": {**SETTINGS["ppo"], **ppo}})
    reader = stored_steps(trainer, tmp_path / "run", 2)
    (_, _), (_, metrics) = reader.metrics_since(0)
    episodes = reader.episodes(2, 2)[2]
    ratios = episodes.tokens["logprobs"].astype(float) - episodes.tokens["ref_logprobs"]
    assert np.abs(ratios).max() > 1e-3 and len(set(episodes.lengths.tolist())) > 1, "otherwise this proves little"
    assert ("kl" in episodes.tokens) == (ppo != {})
    kl = episodes.tokens["kl"].astype(float) if ppo else ratios
    rewards, advantages, whitened = advantages_of(episodes, kl, 0.9, 0.8, 0.3)
    starts = np.cumsum([0, *episodes.lengths])
    for rollout in reader.rollouts(2):
        own = slice(starts[rollout.sample], starts[rollout.sample + 1])
        recorded = reader.rollout(2, rollout.sample).tokens
        assert recorded is not None
        assert episodes.response_ids[own].tolist() == recorded.response_ids.tolist()
        texts = [episodes.pieces[token] for token in recorded.response_ids.tolist()]
        assert texts == [piece.strip() for piece in recorded.response_pieces]
        for name, column in {"kl": kl, "rewards": rewards, "advantages": advantages, "whitened_advantages": whitened}.items():
            np.testing.assert_allclose(column[own], recorded.arrays[name], atol=1e-5, rtol=1e-5, err_msg=name)
        assert episodes.scores[rollout.sample] == pytest.approx(rollout.score)
        assert episodes.stopped[rollout.sample] == rollout.stopped and episodes.lengths[rollout.sample] == rollout.length
        assert episodes.gold is not None and episodes.gold[rollout.sample] == pytest.approx(rollout.gold)
        assert {name: pytest.approx(part[rollout.sample]) for name, part in episodes.parts.items()} == rollout.parts
    of_episode = np.add.reduceat(ratios, starts[:-1])
    values = episodes.tokens["values"].astype(float)
    expected = {
        "objective/kl": of_episode.mean(),
        "objective/entropy": -episodes.tokens["logprobs"].astype(float).sum() / 8,
        "objective/non_score_reward": -0.3 * kl.sum() / 8,
        "objective/rlhf_reward": (episodes.scores.sum() - 0.3 * kl.sum()) / 8,
        "val/values_mean": values.mean(),
        "val/returns_mean": (advantages + values).mean(),
        "val/explained_variance": 1 - (advantages**2).mean() / (advantages + values).var(),
        "gold/score": episodes.gold.mean(),
        "reward/reward_model": episodes.parts["reward_model"].mean(),
        "tokens/response_length": episodes.lengths.mean(),
        "tokens/cut_off": 1 - episodes.stopped.mean(),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-5, rel=1e-4)


def test_each_text_of_a_token_is_given_once(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    recorder, rollout = Recorder(trainer.models.tokenizer, trainer.config), play(trainer)
    ids = set(rollout.tokens.response_ids[rollout.tokens.mask].tolist())
    first = recorder.episodes(rollout)
    assert first.pieces == {token: trainer.models.tokenizer.decode([token]) for token in ids}
    assert recorder.episodes(rollout, [np.array([[17, *ids]])]).pieces == ({17: "w15"} if 17 not in ids else {})
    assert recorder.episodes(rollout).pieces == {}


def test_a_refused_update_keeps_its_episodes_too(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer(engine={"non_finite": "skip", "watch_prompts": 0})
    with torch.no_grad():
        trainer.models.policy.value_head.bias.fill_(float("inf"))
    (episodes,) = stored_steps(trainer, tmp_path / "run", 1).episodes(1, 1).values()
    assert len(episodes.lengths) == 8 and np.isinf(episodes.tokens["values"]).all()
    assert np.isfinite(episodes.tokens["logprobs"]).all() and np.isfinite(episodes.scores).all()
