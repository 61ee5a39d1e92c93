"""Invariants that every model family keeps: padding shifts nothing, the first ratio is 1, the first KL is 0."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch

from rlhf_studio.engine.rollout import collect, sample
from rlhf_studio.engine.trainer import Trainer

FAMILIES = ["gpt2", "llama", "qwen2", "gpt_neox"]
LORA = {"enabled": True, "r": 4, "dropout": 0.3}


def no_timer(phase: str) -> nullcontext[None]:
    return nullcontext()


@pytest.mark.parametrize("lora", [{}, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("family", FAMILIES)
def test_first_ratio_is_one_and_first_kl_is_zero(make_trainer: Callable[..., Trainer], family: str, lora: dict[str, object]) -> None:
    trainer = make_trainer(family, lora=lora)
    first = trainer.step().metrics
    assert first["policy/first_log_ratio"] <= 1e-4
    assert abs(first["objective/kl"]) <= 1e-4
    second = trainer.step().metrics
    assert second["policy/first_log_ratio"] <= 1e-4
    assert abs(second["objective/kl"]) > 1e-4  # the update moved the policy away from the reference
    assert first["optim/steps"] == 2 * 2  # passes times minibatches


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_equal_an_unpadded_pass_of_the_plain_model(make_trainer: Callable[..., Trainer], family: str) -> None:
    """Independent answer: each episode alone, no padding, no position ids, straight from transformers."""
    trainer = make_trainer(family, generation={"response_length": 6, "temperature": 0.7})
    rollout = collect(trainer.player, trainer.prompts.next_batch(8), 0.1, torch.Generator().manual_seed(0), no_timer)
    model = trainer.player.policy.model
    tokens = rollout.tokens
    for row in range(len(tokens)):
        prompt = tokens.prompt_ids[row][tokens.prompt_mask[row]]
        response = tokens.response_ids[row][tokens.mask[row]]
        with torch.no_grad():
            logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits / 0.7, dim=-1).gather(1, response[:, None])[:, 0]
        torch.testing.assert_close(rollout.logprobs[row][: len(response)], expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_sampling_follows_the_model(make_trainer: Callable[..., Trainer], family: str) -> None:
    """With a near-zero temperature sampling is greedy decoding, which transformers does by itself on each prompt alone."""
    trainer = make_trainer(family, generation={"response_length": 6, "temperature": 1e-4})
    batch = trainer.prompts.batch(list(range(6)))
    tokens = sample(trainer.player, batch, trainer.config.generation, torch.Generator().manual_seed(0))
    for row in range(6):
        ids = batch.ids[row][batch.mask[row]][None]
        expected = trainer.player.policy.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=6, pad_token_id=0, eos_token_id=1
        )[0, ids.shape[1] :]
        assert tokens.response_ids[row][tokens.mask[row]].tolist() == expected.tolist()[: int(tokens.lengths[row])]
        assert int(tokens.lengths[row]) == len(expected)


def test_reference_stays_while_the_policy_moves(make_trainer: Callable[..., Trainer]) -> None:
    for lora in ({}, LORA):
        trainer = make_trainer("gpt2", lora=lora)
        batch = collect(trainer.player, trainer.prompts.batch([0, 1, 2, 3]), 0.1, torch.Generator().manual_seed(0), no_timer).tokens

        def reference_logits(trainer: Trainer = trainer, batch: object = batch) -> torch.Tensor:
            with torch.no_grad(), trainer.player.reference.active() as reference:
                return reference(batch)[0].clone()

        before = reference_logits()
        trainer.step()
        torch.testing.assert_close(reference_logits(), before, rtol=0, atol=0)
