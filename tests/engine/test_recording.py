"""What is recorded, against a rollout small enough to work out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.recording.records import Recorder, first_non_finite, objective_metrics, standard_error, update_metrics
from rlhf_studio.engine.types import Alternatives, Rollout, Scores, TokenBatch, UpdateStats
from rlhf_studio.ppo.diagnostics import UpdateSums
from rlhf_studio.runs.records import TOKEN_QUANTITIES
from tests.engine.conftest import play
from tests.engine.small_models import save_tokenizer

NAN = math.nan
MASK = torch.tensor([[True, True, True], [True, False, False]])


def two_episodes(**changes: Any) -> Rollout:
    """Two responses of three tokens and one; behind the mask lies NaN."""
    numbers: dict[str, Any] = {
        "logprobs": [[-1.0, -2.0, -0.5], [-0.25, NAN, NAN]],
        "ref_logprobs": [[-1.5, -1.0, -0.5], [-1.25, NAN, NAN]],
        "values": [[1.0, 2.0, 3.0], [0.0, NAN, NAN]],
        "entropy": [[0.5, 0.6, 0.7], [0.8, NAN, NAN]],
        "kl": [[0.5, -1.0, 0.0], [1.0, NAN, NAN]],
        "rewards": [[7.0, 7.0, 7.0], [7.0, NAN, NAN]],
        "advantages": [[1.0, 0.0, 1.0], [1.0, NAN, NAN]],
        "whitened_advantages": [[1.0, -1.0, 1.0], [-1.0, NAN, NAN]],
        "returns": [[2.0, 2.0, 4.0], [1.0, NAN, NAN]],
        "deltas": [[0.1, 0.2, 0.3], [0.4, NAN, NAN]],
    }
    tokens = TokenBatch(
        torch.tensor([[0, 5], [6, 7]]), torch.tensor([[False, True], [True, True]]), torch.tensor([[2, 3, 1], [4, 0, 0]]), MASK
    )
    top = Alternatives(torch.tensor([[[2, 3], [3, 2], [1, 2]]] * 2), torch.tensor([[[-0.1, -2.0]] * 3] * 2))
    reference = Alternatives(torch.tensor([[[4, 3], [3, 2], [1, 2]]] * 2), torch.tensor([[[-0.3, -1.0]] * 3] * 2))
    scores = Scores(
        torch.tensor([2.0, -1.0]),
        {"style": torch.tensor([1.5, -1.5]), "length": torch.tensor([0.5, 0.5])},
        torch.tensor([1.0, -2.0]),
        torch.tensor([0.5, -0.5]),
    )
    rollout = Rollout(
        tokens=tokens,
        prompts=["w3", "w4 w5"],
        responses=["w0 w1", "w2"],
        stopped=torch.tensor([True, False]),
        kl_coef=0.2,
        scores=scores,
        recorded=2,
        top=top,
        ref_top=reference,
        **{name: torch.tensor(rows) for name, rows in numbers.items()},
    )
    return replace(rollout, **changes)


# --- metrics -----------------------------------------------------------------------------------------------------------------


def test_metrics_by_hand() -> None:
    metrics = objective_metrics(two_episodes(), PPOConfig(), stop_known=True)
    k3 = ((math.exp(-0.5) - 0.5) + (math.exp(1) - 2) + math.exp(-1)) / 2
    expected = {
        "objective/scores": 0.5,
        "objective/scores_std": 3 / math.sqrt(2),
        "objective/scores_se": 1.5,
        "objective/scores_min": -1.0,
        "objective/scores_max": 2.0,
        "reward/style": 0.0,
        "reward/length": 0.5,
        "objective/kl": (-0.5 + 1.0) / 2,
        "objective/kl_k3": k3,
        "objective/entropy": (3.5 + 0.25) / 2,
        "objective/non_score_reward": -0.2 * (-0.5 + 1.0) / 2,
        "objective/rlhf_reward": -0.2 * (-0.5 + 1.0) / 2 + (1.0 - 2.0) / 2,
        "objective/kl_coef": 0.2,
        "val/explained_variance": 1 - 0.75 / 1.1875,
        "val/returns_mean": 9 / 4,
        "val/values_mean": 6 / 4,
        "val/num_eos_tokens": 1.0,
        "tokens/response_length": 2.0,
        "tokens/cut_off": 0.5,
        "tokens/reward_cut": 0.0,
        "gold/score": 0.0,
        "gold/score_se": 0.5,
    }
    assert metrics == pytest.approx(expected, rel=1e-6)


def test_standard_errors_are_of_the_means_of_the_prompts() -> None:
    """Three prompts with two responses each; with one response each, bit for bit what torch gives for the responses."""
    values = torch.tensor([1.0, 3.0, 5.0, 5.0, 0.0, 1.0])
    means = np.array([2.0, 5.0, 0.5])
    assert standard_error(values, 2) == pytest.approx(means.std(ddof=1) / math.sqrt(3))
    assert standard_error(values, 1) == float(values.std() / math.sqrt(6))
    rollout = two_episodes()
    metrics = objective_metrics(rollout, PPOConfig(batch_size=2, mini_batch_size=2, responses_per_prompt=2), stop_known=True)
    assert metrics["objective/scores_se"] == metrics["gold/score_se"] == 0.0  # one prompt tells nothing of others


def test_nothing_is_charged_when_the_kl_is_in_the_loss() -> None:
    settings = PPOConfig(kl_placement="loss", kl_estimator="k2")
    metrics = objective_metrics(two_episodes(), settings, stop_known=True)
    assert metrics["objective/non_score_reward"] == 0.0
    assert metrics["objective/rlhf_reward"] == pytest.approx(-0.5)


def test_scaled_rewards_do_not_change_what_was_charged(make_trainer: Callable[..., Trainer]) -> None:
    """The charge is of the KL itself; rewards that were scaled to variance 1 say nothing about it."""
    for whiten in (False, True):
        trainer = make_trainer(ppo={"whiten_rewards": whiten})
        with torch.no_grad():
            trainer.models.policy.model.get_output_embeddings().weight.mul_(1.2)
        rollout = play(trainer, kl_coef=0.3)
        metrics = objective_metrics(rollout, trainer.config.ppo, stop_known=True)
        assert metrics["objective/non_score_reward"] == pytest.approx(-0.3 * metrics["objective/kl"], rel=1e-4)


def test_metrics_of_one_episode_without_stop_token_or_gold() -> None:
    rollout = two_episodes()
    index = torch.tensor([0])
    alone = replace(
        rollout,
        tokens=rollout.tokens.rows(index),
        stopped=torch.tensor([True]),
        scores=Scores(torch.tensor([2.0]), {}, torch.tensor([1.0]), None),
        **{name: getattr(rollout, name)[:1] for name in ("logprobs", "ref_logprobs", "values", "kl", "rewards", "returns")},
    )
    metrics = objective_metrics(alone, PPOConfig(), stop_known=False)
    assert metrics["objective/scores_std"] == 0.0
    assert metrics["val/num_eos_tokens"] == 0.0
    assert metrics["objective/kl"] == pytest.approx(-0.5)
    assert not any(name.startswith("gold/") for name in metrics)
    one_gold = replace(alone, scores=replace(alone.scores, gold=torch.tensor([0.25])))
    assert objective_metrics(one_gold, PPOConfig(), stop_known=False)["gold/score_se"] == 0.0


def test_update_metrics_have_their_names() -> None:
    sums = UpdateSums(
        policy_loss=2.0, value_loss=4.0, clipped=1.0, value_clipped=0.5, entropy=12.0, kl_loss=0.0, squared_change=12.0, ratio=6.0,
        squared_ratio=34.0, tokens=2.0, weight=4.0,
    )  # fmt: skip
    assert update_metrics(UpdateStats(sums, 9.0, 10.0, 11, False, torch.zeros(1, 1)), 0.5, has_critic=True) == {
        "loss/policy_avg": 0.5, "loss/value_avg": 1.0, "policy/approxkl_avg": 3.0, "policy/clipfrac_avg": 0.5, "val/clipfrac_avg": 0.25,
        "policy/entropy_avg": 6.0, "val/ratio": 3.0, "val/ratio_var": 8.0, "optim/grad_norm": 9.0, "policy/first_log_ratio": 10.0,
        "optim/steps": 11.0, "lr": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["logprobs", "ref_logprobs", "values", "kl", "rewards", "advantages"])
@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_the_first_bad_quantity_is_named(name: str, value: float) -> None:
    assert first_non_finite(two_episodes()) == ""
    bad = getattr(two_episodes(), name).clone()
    bad[1, 0] = value
    later = torch.full((2, 3), NAN)  # bad too, but named later
    spoiled = two_episodes(**{"advantages": later, name: bad})
    assert first_non_finite(spoiled) == f"{name} is not finite in episode 1, prompt 'w4 w5'"


# --- records -----------------------------------------------------------------------------------------------------------------


def records(tmp_path: Path, rollout: Rollout, new: list[list[float]], **ppo: Any) -> list[Any]:
    config = RunConfig(ppo=PPOConfig(gamma=0.9, lam=0.8, **ppo))
    return Recorder(save_tokenizer(tmp_path), config).rollouts(rollout, torch.tensor(new))


def test_records_by_hand(tmp_path: Path) -> None:
    new = [[-0.9, -2.0, -0.5], [-0.25, NAN, NAN]]
    first, second = records(tmp_path, two_episodes(), new)
    assert (first.sample, first.prompt, first.response, first.length, first.stopped) == (0, "w3", "w0 w1", 3, True)
    assert (second.sample, second.prompt, second.response, second.length, second.stopped) == (1, "w4 w5", "w2", 1, False)
    assert (first.score, first.gold, first.kl) == (1.0, 0.5, -0.5)
    assert (second.score, second.gold, second.kl) == (-2.0, -0.5, 1.0)
    assert first.parts == {"style": 1.5, "length": 0.5}
    tokens = first.tokens
    assert (tokens.gamma, tokens.lam, tokens.kl_coef) == (0.9, 0.8, 0.2)
    assert tokens.prompt_ids.tolist() == [5] and tokens.response_ids.tolist() == [2, 3, 1]
    assert second.tokens.prompt_ids.tolist() == [6, 7] and second.tokens.response_ids.tolist() == [4]
    assert tokens.prompt_pieces == ["w3"] and tokens.response_pieces == [" w0", " w1", " <eos>"]
    assert set(tokens.arrays) == set(TOKEN_QUANTITIES)
    assert all(array.dtype == np.float32 and array.shape == (3,) for array in tokens.arrays.values())
    assert all(np.isfinite(array).all() for record in (first, second) for array in record.tokens.arrays.values())
    assert tokens.arrays["ratio"].tolist() == pytest.approx([math.exp(0.1), 1.0, 1.0])
    assert tokens.arrays["advantages"].tolist() == [1.0, 0.0, 1.0]
    assert tokens.arrays["whitened_advantages"].tolist() == [1.0, -1.0, 1.0]
    assert tokens.top_ids.tolist() == [[2, 3], [3, 2], [1, 2]] and tokens.ref_top_ids.tolist() == [[4, 3], [3, 2], [1, 2]]
    assert second.tokens.top_ids.tolist() == [[2, 3]] and second.tokens.ref_top_logprobs[0].tolist() == pytest.approx([-0.3, -1.0])
    assert tokens.top_pieces == {1: "<eos>", 2: "w0", 3: "w1", 4: "w2"}


def test_what_the_last_pass_of_an_update_saw_is_recorded(make_trainer: Callable[..., Trainer]) -> None:
    """Of two passes of one minibatch each the first sees no change yet: the mean step size is half that of the second."""
    step = make_trainer(ppo={"mini_batch_size": 8}, engine={"record_samples": 8}).step()
    tokens = [record.tokens.arrays for record in step.rollouts]
    changes = np.concatenate([arrays["new_logprobs"] - arrays["logprobs"] for arrays in tokens])
    assert step.metrics["policy/approxkl_avg"] == pytest.approx(float(np.square(changes).mean()) / 2 / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("ratios", "ppo", "clipped"),
    [
        ([1.3, 1.3, 1.1], {}, [1, 0, 0]),  # advantages +1, -1, +1: a rise pays off for the first, not for the second
        ([0.7, 0.7, 0.9], {}, [0, 1, 0]),
        ([1.3, 0.7, 1.5], {"cliprange_high": 0.4}, [0, 1, 1]),
        ([1.3, 4.0, 0.1], {"dual_clip": 3.0}, [1, 1, 0]),  # dual clip decides for a bad token that rose beyond 3
    ],
)
def test_clipped_means_that_clipping_decided(tmp_path: Path, ratios: list[float], ppo: dict[str, Any], clipped: list[int]) -> None:
    rollout = two_episodes()
    new = [[float(old) + math.log(ratio) for old, ratio in zip(rollout.logprobs[0], ratios, strict=True)], [-0.25, NAN, NAN]]
    first, second = records(tmp_path, rollout, new, **ppo)
    assert first.tokens.arrays["clipped"].tolist() == clipped
    assert second.tokens.arrays["clipped"].tolist() == [0]
    assert first.tokens.arrays["ratio"].tolist() == pytest.approx(ratios)
