"""The PPO update: gradients against an independent computation, and each term of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.types import Rollout, TokenBatch
from tests.engine.conftest import play
from tests.engine.learning import LORA, backward, flat_gradient, gradients, relative, shift

# --- the gradient ------------------------------------------------------------------------------------------------------------


def by_hand(trainer: Trainer, rollout: Rollout, kl_coef: float) -> Tensor:
    """The loss of PPO_SPEC section 6, token by token: each episode alone, no padding, straight from transformers."""
    settings, policy = trainer.config.ppo, trainer.models.policy
    temperature = trainer.config.generation.temperature
    total, count = torch.zeros(()), 0
    for row in range(len(rollout.tokens)):
        prompt = rollout.tokens.prompt_ids[row][rollout.tokens.prompt_mask[row]]
        response = rollout.tokens.response_ids[row][rollout.tokens.mask[row]]
        output = policy.model(torch.cat([prompt, response])[None], output_hidden_states=True)
        hidden = output.hidden_states[-1][0]
        for index, token in enumerate(response.tolist()):
            at = len(prompt) - 1 + index
            distribution = (output.logits[0, at] / temperature).log_softmax(dim=-1)
            ratio = (distribution[token] - rollout.logprobs[row, index]).exp()
            advantage = rollout.whitened_advantages[row, index]
            limited = ratio.clamp(1 - settings.cliprange, 1 + (settings.cliprange_high or settings.cliprange))
            loss = torch.maximum(-advantage * ratio, -advantage * limited)
            value = policy.value_head(hidden[at])[0]
            target, old = rollout.returns[row, index], rollout.values[row, index]
            near = old + (value - old).clamp(-settings.cliprange_value, settings.cliprange_value)
            loss = loss + settings.vf_coef * 0.5 * torch.maximum((value - target) ** 2, (near - target) ** 2)
            loss = loss + settings.entropy_coef * (distribution.exp() * distribution).sum()
            if settings.kl_placement == "loss":
                difference = distribution[token] - rollout.ref_logprobs[row, index]
                k3 = (-difference).exp() - 1 + difference
                loss = loss + kl_coef * (0.5 * difference**2 if settings.kl_estimator == "k2" else k3)
            total, count = total + loss, count + 1
    (total / count).backward()
    return flat_gradient(trainer)


@pytest.mark.parametrize(
    "ppo",
    [
        {"entropy_coef": 0.3, "cliprange": 0.1, "cliprange_high": 0.4, "vf_coef": 0.7},
        {"kl_placement": "loss", "kl_estimator": "k2"},
        {"kl_placement": "loss", "kl_estimator": "k3", "vf_coef": 0.0},
    ],
    ids=["entropy and clip-higher", "k2 in the loss", "k3 in the loss"],
)
def test_gradient_against_a_loss_written_out(make_trainer: Callable[..., Trainer], ppo: dict[str, Any]) -> None:
    trainer = make_trainer("llama", ppo={"mini_batch_size": 8, **ppo}, generation={"response_length": 6, "temperature": 0.8})
    shift(trainer, seed=1)
    rollout = play(trainer)
    shift(trainer)
    sums = backward(trainer, rollout, kl_coef=0.2).sums
    assert 0 < sums.clipped < sums.tokens and sums.value_clipped > 0  # both branches take part
    ours = gradients(trainer, rollout, kl_coef=0.2)
    trainer.updater.optimizer.zero_grad()
    assert relative(ours, by_hand(trainer, rollout, 0.2)) < 1e-5


@pytest.mark.parametrize(
    "kinds",
    [{}, {"loss_average": "responses"}, {"loss_average": "constant", "ratio_level": "sequence"}],
    ids=["PPO", "responses", "constant"],
)
def test_micro_batches_change_nothing(make_trainer: Callable[..., Trainer], kinds: dict[str, str]) -> None:
    """Lengths differ, so a mean of means would be off by far more than rounding."""
    compared = {"advantage": "grpo", "responses_per_prompt": 4} if "ratio_level" in kinds else {}
    ppo = {"entropy_coef": 0.1, "kl_placement": "loss", "kl_estimator": "k3", **kinds, **compared}
    actual = []
    for size in (4, 1):
        lengths = {"response_length": 6, "response_length_min": 2}
        trainer = make_trainer(ppo={"micro_batch_size": size, **ppo}, generation=lengths)
        shift(trainer, seed=1)
        rollout = play(trainer)
        shift(trainer)
        index = torch.tensor([6, 1, 3, 4])
        assert len(set(rollout.tokens.lengths[index].tolist())) > 1
        actual.append((gradients(trainer, rollout, index), backward(trainer, rollout, index)))
    whole, whole_stats = actual[0]
    for gradient, stats in actual[1:]:
        assert relative(gradient, whole) < 1e-5
        assert stats.sums.tokens == whole_stats.sums.tokens
        assert stats.sums.policy_loss == pytest.approx(whole_stats.sums.policy_loss, rel=1e-4, abs=1e-4)
        assert stats.largest_log_ratio == pytest.approx(whole_stats.largest_log_ratio, rel=1e-4)


def test_bad_hidden_states_under_padding_change_nothing(make_trainer: Callable[..., Trainer]) -> None:
    ppo = {"entropy_coef": 0.1, "kl_placement": "loss", "kl_estimator": "k2"}
    trainer = make_trainer(ppo=ppo, generation={"response_length": 6, "response_length_min": 2})
    shift(trainer, seed=1)
    trainer.models = replace(trainer.models, traced_step=None)  # what is hooked below must be asked
    for model in (trainer.models.policy, trainer.models.reference._copy):
        assert model is not None
        model.packs = False  # a packed row has no padding
    clean = play(trainer)
    assert not clean.tokens.mask.all()
    trainer.prompts.restore({"pass": 0, "place": 0})
    gradient = gradients(trainer, clean)

    def note_batch(_module: torch.nn.Module, inputs: tuple[TokenBatch]) -> None:
        lengths = inputs[0].whole_lengths[:, None]
        real[:] = [torch.arange(int(lengths.max())) < lengths]

    def note_mask(_module: torch.nn.Module, inputs: tuple[Tensor, ...], options: dict[str, Tensor]) -> None:
        if not options["attention_mask"].all():  # while sampling, where padding is on the left
            real[:] = [options["attention_mask"].bool()]

    def add_bad(_module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        bad = torch.where(real[-1][:, -output.shape[1] :], 0.0, torch.nan)[..., None]
        return output + bad  # added, so that a bad gradient would go on into the model

    real: list[Tensor] = []
    for model in (trainer.models.policy, trainer.models.reference._copy):
        assert model is not None
        model.register_forward_pre_hook(note_batch)
        model.model.register_forward_pre_hook(note_mask, with_kwargs=True)
        model.model.transformer.ln_f.register_forward_hook(add_bad)
    rollout = play(trainer)
    for name in ("logprobs", "ref_logprobs", "entropy", "rewards", "advantages", "whitened_advantages", "returns", "deltas"):
        assert torch.equal(getattr(rollout, name), getattr(clean, name)), name
    assert torch.equal(gradients(trainer, rollout), gradient)


def test_dropout_is_off(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer("gpt2", lora=LORA)
    rates = {module.p for module in trainer.models.policy.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates - {0.0}  # there is dropout that could act
    rollout = play(trainer)
    assert torch.equal(gradients(trainer, rollout), gradients(trainer, rollout))
    trainer.step()
    assert not any(module.training for module in trainer.models.policy.modules())


# --- terms of the loss -------------------------------------------------------------------------------------------------------


def only(rollout: Rollout, advantage: float) -> Rollout:
    """The rollout with this advantage at every token."""
    return replace(rollout, whitened_advantages=torch.full_like(rollout.logprobs, advantage))


def play_again(trainer: Trainer, rollout: Rollout) -> Tensor:
    """Log-probabilities of the whole rollout under the policy as it is now."""
    return trainer.models.forward_pass.run(trainer.models.policy, rollout.tokens, 0).logprobs


def test_the_last_pass_is_what_a_pass_of_the_model_says_before_the_last_step(make_trainer: Callable[..., Trainer]) -> None:
    """Two passes of two minibatches: each half was last seen one and no optimizer step before the last one."""
    trainer = make_trainer(ppo={"micro_batch_size": 1, "learning_rate": 1e-2})
    rollout, read = play(trainer), []
    backward, minibatches = trainer.updater.gradients.backward, []

    def followed(rollout: Rollout, index: Tensor, *args: Any, **kwargs: Any) -> Any:
        minibatches.append(index)
        read.append(play_again(trainer, rollout))
        return backward(rollout, index, *args, **kwargs)

    trainer.updater.gradients.backward = followed  # type: ignore[method-assign]
    stats = trainer.updater.update(rollout, 0, torch.Generator().manual_seed(0))
    assert len(read) == 4
    for index, expected in zip(minibatches[2:], read[2:], strict=True):
        torch.testing.assert_close(stats.logprobs[index], expected[index], atol=1e-5, rtol=0)
    moved = (stats.logprobs - rollout.logprobs)[rollout.tokens.mask].abs()
    assert float(moved.max()) > 1e-2


def test_dual_clip_bounds_the_loss_of_bad_tokens(make_trainer: Callable[..., Trainer]) -> None:
    """Ratio 10 everywhere and advantage -1: the loss per token is 10 and pushes; with c = 3 it is 3 and does not."""
    for dual_clip, loss in ((0.0, 10.0), (3.0, 3.0)):
        trainer = make_trainer(ppo={"dual_clip": dual_clip, "vf_coef": 0.0})
        rollout = only(play(trainer), -1.0)
        far = replace(rollout, logprobs=rollout.logprobs - math.log(10))
        sums = backward(trainer, far).sums
        assert sums.mean_policy_loss == pytest.approx(loss, rel=1e-4)
        assert sums.clipped == (sums.tokens if dual_clip else 0)
        assert (float(gradients(trainer, far).norm()) == 0) == bool(dual_clip)
