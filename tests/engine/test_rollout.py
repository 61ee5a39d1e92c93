"""From sampled tokens to rewards and advantages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_studio.engine.loop.generate import ends_with_stop
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.rewards.scorer import Episodes
from rlhf_studio.engine.types import Rollout, TokenBatch
from tests.engine.conftest import play


def move_away(trainer: Trainer) -> None:
    """Give policy and reference something to disagree about, and the critic something to say."""
    generator = torch.Generator().manual_seed(2)
    policy = trainer.models.policy
    with torch.no_grad():
        for parameter in [*policy.model_parameters(), *policy.value_head.parameters()]:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)


def distributions(trainer: Trainer, rollout: Rollout, row: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities (T, V) of one episode under policy and reference, straight from the plain models, unpadded."""
    tokens = rollout.tokens
    prompt, response = tokens.prompt_ids[row][tokens.prompt_mask[row]], tokens.response_ids[row][tokens.mask[row]]
    ids, actual = torch.cat([prompt, response])[None], []
    with trainer.models.reference.active() as reference:
        for model in (trainer.models.policy.model, reference.model):
            with torch.no_grad():
                logits = model(ids).logits[0, len(prompt) - 1 : -1]
            actual.append((logits / trainer.config.generation.temperature).log_softmax(dim=-1))
    return actual[0], actual[1]


@pytest.mark.parametrize(("estimator", "micro"), [("k3", 0), ("full", 2)])
def test_kl_of_every_token(make_trainer: Callable[..., Trainer], estimator: str, micro: int) -> None:
    trainer = make_trainer(
        ppo={"kl_estimator": estimator, "micro_batch_size": micro}, generation={"response_length": 5, "temperature": 0.8}
    )
    move_away(trainer)
    rollout = play(trainer)
    for row in range(8):
        ours, theirs = distributions(trainer, rollout, row)
        at = rollout.tokens.response_ids[row][rollout.tokens.mask[row]][:, None]
        d = (ours - theirs).gather(1, at)[:, 0]
        expected = {"k3": (-d).exp() - 1 + d, "full": (ours.exp() * (ours - theirs)).sum(dim=-1)}[estimator]
        torch.testing.assert_close(rollout.kl[row][: len(d)], expected, atol=5e-5, rtol=1e-4)


def by_hand(rollout: Rollout, row: int, kl_coef: float, gamma: float, lam: float) -> dict[str, list[float]]:
    """Rewards, deltas, advantages and returns of one episode by the formulas, from the last token back."""
    length = int(rollout.tokens.lengths[row])
    kl, values = rollout.kl[row].tolist(), rollout.values[row].tolist()
    rewards = [-kl_coef * kl[index] for index in range(length)]
    rewards[-1] += float(rollout.scores.shaped[row])
    deltas, advantages, later, next_value = [0.0] * length, [0.0] * length, 0.0, 0.0
    for index in reversed(range(length)):
        deltas[index] = rewards[index] + gamma * next_value - values[index]
        later = deltas[index] + gamma * lam * later
        advantages[index], next_value = later, values[index]
    returns = [advantages[index] + values[index] for index in range(length)]
    return {"rewards": rewards, "deltas": deltas, "advantages": advantages, "returns": returns}


@pytest.mark.parametrize(("placement", "charged"), [("reward", 0.3), ("loss", 0.0)])
def test_rewards_and_advantages_by_hand(make_trainer: Callable[..., Trainer], placement: str, charged: float) -> None:
    trainer = make_trainer(ppo={"kl_placement": placement, "kl_estimator": "k3", "gamma": 0.9, "lam": 0.7})
    move_away(trainer)
    rollout = play(trainer, kl_coef=0.3)
    for row in range(8):
        for name, expected in by_hand(rollout, row, charged, 0.9, 0.7).items():
            assert getattr(rollout, name)[row][: len(expected)].tolist() == pytest.approx(expected, abs=1e-5), name
            assert not getattr(rollout, name)[row][len(expected) :].any()


def test_whitening(make_trainer: Callable[..., Trainer]) -> None:
    """Whitened advantages have mean 0 and variance 1 over the real tokens; scaled rewards keep their mean."""
    actual = {}
    for options in ({}, {"whiten_advantages": False}, {"whiten_rewards": True}):
        trainer = make_trainer(ppo=options)
        move_away(trainer)
        actual[str(options)] = rollout = play(trainer)
    plain, unwhitened, scaled = actual.values()
    real = rollout.tokens.mask
    assert float(plain.whitened_advantages[real].mean()) == pytest.approx(0, abs=1e-6)
    assert float(plain.whitened_advantages[real].std()) == pytest.approx(1, rel=1e-4)
    assert torch.equal(unwhitened.whitened_advantages, unwhitened.advantages)
    assert float(scaled.rewards[real].std()) == pytest.approx(1, rel=1e-4)
    assert float(scaled.rewards[real].mean()) == pytest.approx(float(plain.rewards[real].mean()), rel=1e-4)
    assert float(plain.rewards[real].std()) != pytest.approx(1, rel=0.1)


def test_the_stop_token_is_the_last_one_sampled() -> None:
    tokens = TokenBatch(
        torch.zeros(3, 1, dtype=torch.long),
        torch.ones(3, 1, dtype=torch.bool),
        torch.tensor([[5, 1, 1], [5, 6, 1], [5, 6, 7]]),
        torch.tensor([[True, True, False], [True, True, False], [True, True, True]]),
    )
    assert ends_with_stop(tokens, 1).tolist() == [True, False, False]
    assert ends_with_stop(tokens, 7).tolist() == [False, False, True]
    assert ends_with_stop(tokens, None).tolist() == [True, True, True]


def test_the_penalty_meets_only_what_was_cut_off(make_trainer: Callable[..., Trainer]) -> None:
    options: dict[str, Any] = {"components": [{"kind": "length", "target": 3, "tolerance": 100}], "missing_eos_penalty": 2.0}
    rollout = play(make_trainer(reward=options), size=64)
    assert 0 < int(rollout.stopped.sum()) < 64
    charged = (rollout.scores.raw - rollout.scores.shaped).tolist()
    assert charged == pytest.approx([0.0 if stopped else 2.0 for stopped in rollout.stopped.tolist()])
    everything = play(make_trainer(reward=options, generation={"response_length": 6, "stop_token": "none"}))
    assert torch.equal(everything.scores.raw, everything.scores.shaped)  # without a stop token nothing is cut off


def test_references_reach_the_scorer_beside_their_prompts(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    pairs = {"w1 w2 w3": "first", "w4": "second", "w5 w6": "third"}
    rows = "".join(f"{prompt},{reference}\n" for prompt, reference in pairs.items())
    (tmp_path / "pairs.csv").write_text("prompt,answer\n" + rows)
    trainer = make_trainer(data={"prompts": str(tmp_path / "pairs.csv"), "reference_column": "answer"}, engine={"watch_prompts": 2})
    recorded: list[Episodes] = []
    component = trainer.models.scorer.components[0]
    listening = replace(component, source=lambda episodes: (recorded.append(episodes), component.source(episodes))[1])
    trainer.models.scorer.components[0] = listening
    play(trainer)
    trainer.watched()[0]
    assert [len(episodes.prompts) for episodes in recorded] == [8, 2]
    assert all(episodes.references == [pairs[prompt] for prompt in episodes.prompts] for episodes in recorded)


def test_rows_leave_out_columns_that_nobody_needs() -> None:
    tokens = TokenBatch(
        torch.tensor([[0, 0, 3], [4, 5, 6], [0, 7, 8]]),
        torch.tensor([[False, False, True], [True, True, True], [False, True, True]]),
        torch.tensor([[1, 0, 0], [2, 3, 4], [5, 6, 0]]),
        torch.tensor([[True, False, False], [True, True, True], [True, True, False]]),
    )
    some = tokens.rows(torch.tensor([2, 0]))
    assert some.prompt_ids.tolist() == [[7, 8], [0, 3]] and some.prompt_mask.tolist() == [[True, True], [False, True]]
    assert some.response_ids.tolist() == [[5, 6], [1, 0]] and some.lengths.tolist() == [2, 1]
    assert len(tokens) == 3 and len(some) == 2


def test_a_model_reads_rows_that_start_at_the_left_and_are_as_wide_as_the_longest() -> None:
    tokens = TokenBatch(
        torch.tensor([[9, 9, 3], [4, 5, 6], [9, 7, 8]]),
        torch.tensor([[False, False, True], [True, True, True], [False, True, True]]),
        torch.tensor([[1, 2, 10], [2, 9, 9], [5, 9, 9]]),
        torch.tensor([[True, True, True], [True, False, False], [True, False, False]]),
    )
    inputs = tokens.model_inputs()
    assert inputs["input_ids"].tolist() == [[3, 1, 2, 10], [4, 5, 6, 2], [7, 8, 5, 0]]
    assert inputs["position_ids"].tolist() == [[0, 1, 2, 3]] * 3
    assert inputs["attention_mask"].all()  # what stands behind a row is never attended to
    hidden = 100 * torch.arange(3)[:, None, None] + torch.arange(4)[None, :, None]  # row and column
    assert tokens.predicting(hidden).squeeze(1).tolist() == [0, 1, 2, 102, 201]
