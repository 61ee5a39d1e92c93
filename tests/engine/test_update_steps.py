"""How an update proceeds: steps, schedules, what makes it leave off, bad numbers, precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_studio.config import PPOConfig
from rlhf_studio.engine.learning_rate import learning_rate_factor
from rlhf_studio.engine.loop.minibatch import MinibatchGradients
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.policy import ResponseModel
from rlhf_studio.engine.types import NonFiniteError, TokenBatch
from tests.engine.conftest import play
from tests.engine.learning import LORA, changed, gradients, weights

# --- steps and schedules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mini", "micro", "epochs", "steps"), [(8, 0, 1, 1), (4, 1, 3, 6)])
def test_one_optimizer_step_per_minibatch(
    make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch, mini: int, micro: int, epochs: int, steps: int
) -> None:
    trainer = make_trainer(ppo={"mini_batch_size": mini, "micro_batch_size": micro, "ppo_epochs": epochs})
    calls = []
    original = trainer.updater.optimizer.step
    monkeypatch.setattr(trainer.updater.optimizer, "step", lambda: (calls.append(1), original()))
    seen: list[list[int]] = []
    backward = MinibatchGradients.backward
    monkeypatch.setattr(
        MinibatchGradients,
        "backward",
        lambda self, rollout, index, *rest, **more: (seen.append(index.tolist()), backward(self, rollout, index, *rest, **more))[1],
    )
    assert trainer.step().metrics["optim/steps"] == len(calls) == steps
    passes = [sum(seen[start : start + 8 // mini], []) for start in range(0, len(seen), 8 // mini)]
    assert len(passes) == epochs
    assert all(sorted(order) == list(range(8)) for order in passes)  # each pass sees every episode once
    assert epochs == 1 or len({tuple(order) for order in passes}) > 1  # in a fresh order


def test_gradients_are_freed_after_the_update(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    trainer.step()
    assert all(parameter.grad is None for parameter in trainer.updater.gradients.parameters)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"lr_schedule": "constant"}, [1, 1, 1, 1]), ({"lr_schedule": "linear"}, [1, 0.75, 0.5, 0.25, 0, 0]),
        ({"lr_schedule": "cosine"}, [1, (1 + 2**-0.5) / 2, 0.5, (1 - 2**-0.5) / 2, 0]),
        ({"lr_schedule": "constant", "warmup_steps": 3}, [0.25, 0.5, 0.75, 1, 1]),
        ({"lr_schedule": "linear", "warmup_steps": 2}, [1 / 3, 2 / 3, 1, 0.5]),
        ({"lr_schedule": "cosine", "warmup_steps": 2}, [1 / 3, 2 / 3, 1, 0.5]),
        ({"lr_schedule": "linear", "warmup_steps": 9}, [0.1, 0.2, 0.3, 0.4]),
    ],
)  # fmt: skip
def test_learning_rate_schedules(settings: dict[str, Any], expected: list[float]) -> None:
    ppo = PPOConfig(steps=4, **settings)
    schedule = (ppo.steps, ppo.warmup_steps, ppo.lr_schedule)
    assert [learning_rate_factor(step, *schedule) for step in range(len(expected))] == pytest.approx(expected)


def test_the_rate_that_is_recorded_is_the_rate_that_is_used(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(ppo={"steps": 4, "warmup_steps": 1, "learning_rate": 1e-3, "critic_learning_rate": 1e-2})
    rates = []
    for _ in range(4):
        rates.append(trainer.step().metrics["lr"])
        assert [group["lr"] for group in trainer.updater.optimizer.param_groups] == pytest.approx([rates[-1], 10 * rates[-1]])
    assert rates == pytest.approx([0.5e-3, 1e-3, 2e-3 / 3, 1e-3 / 3])


def test_separate_critic_rate(make_trainer: Callable[..., Trainer]) -> None:
    """Adam's first step moves a weight by its rate, whatever the size of the gradient (well above epsilon)."""
    trainer = make_trainer(
        ppo={"mini_batch_size": 8, "ppo_epochs": 1, "learning_rate": 1e-4, "critic_learning_rate": 1e-2, "max_grad_norm": 0.0}
    )
    before = weights(trainer)
    trainer.step()
    moved = {name: float((tensor - before[name]).abs().max()) for name, tensor in trainer.models.policy.state_dict().items()}
    assert moved.pop("value_head.bias") == pytest.approx(1e-2, rel=0.05)
    assert moved.pop("value_head.weight") == pytest.approx(1e-2, rel=0.05)
    assert max(moved.values()) == pytest.approx(1e-4, rel=0.05)


def test_critic_warm_up_trains_the_head_only(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(ppo={"steps": 3, "critic_warmup_steps": 2, "weight_decay": 0.1})
    for _ in range(2):
        before = weights(trainer)
        metrics = trainer.step().metrics
        assert changed(before, trainer) == {"value_head"}
        assert metrics["val/ratio"] == pytest.approx(1.0, abs=1e-5)
    before = weights(trainer)
    trainer.step()
    assert changed(before, trainer) == {"model", "value_head"}


def test_gradient_clipping(make_trainer: Callable[..., Trainer]) -> None:
    """Plain clipping by hand: the gradient that reaches the optimizer has the limit's norm, and the recorded norm is the unclipped one."""
    for limit in (0.0, 1e-3):
        trainer = make_trainer(ppo={"mini_batch_size": 8, "ppo_epochs": 1, "max_grad_norm": limit})
        rollout = play(trainer)
        full = float(gradients(trainer, rollout).norm())
        used: list[float] = []
        trainer.updater.optimizer.step = lambda trainer=trainer, used=used: used.append(  # type: ignore[method-assign]
            float(torch.cat([p.grad.flatten() for p in trainer.updater.gradients.parameters]).norm())
        )
        stats = trainer.updater.update(rollout, 0, torch.Generator().manual_seed(0))
        assert stats.grad_norm == pytest.approx(full, rel=1e-4)
        assert used == [pytest.approx(1e-3 if limit == 1e-3 else full, rel=1e-3)]


# --- leaving off -------------------------------------------------------------------------------------------------------------


def test_target_kl_ends_the_passes(make_trainer: Callable[..., Trainer]) -> None:
    ppo = {"ppo_epochs": 10, "learning_rate": 1e-2, "mini_batch_size": 8}
    trainer = make_trainer(ppo={**ppo, "target_kl": 0.01})
    record = trainer.step()
    assert 1 <= record.metrics["optim/steps"] < 10
    assert [event.kind for event in record.events] == ["early_stop"]
    # The minibatch that showed the excess is counted in the mean but was not learned from.
    assert make_trainer(ppo=ppo).step().metrics["optim/steps"] == 10


def test_target_kl_is_compared_with_one_and_a_half_times(make_trainer: Callable[..., Trainer]) -> None:
    """Every token's log-probability moved by exactly 0.2, so the approximate KL is 0.02."""
    for target, steps in ((0.0132, 0), (0.0134, 1)):
        trainer = make_trainer(ppo={"ppo_epochs": 1, "mini_batch_size": 8, "target_kl": target})
        rollout = play(trainer)
        stats = trainer.updater.update(replace(rollout, logprobs=rollout.logprobs - 0.2), 0, torch.Generator().manual_seed(0))
        assert stats.sums.approx_kl == pytest.approx(0.02, rel=1e-4)
        assert (stats.optimizer_steps, stats.stopped_early) == (steps, steps == 0)


def test_ratio_threshold_skips_the_minibatch(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(ppo={"ratio_threshold": 2.0}, engine={"non_finite": "stop"})
    rollout = play(trainer)
    before = weights(trainer)
    for shifted, skipped in ((math.log(2.1), 4), (math.log(1.9), 0)):
        far = replace(rollout, logprobs=rollout.logprobs - shifted)
        stats = trainer.updater.update(far, 0, torch.Generator().manual_seed(0))
        assert (len(stats.problems), stats.optimizer_steps) == (skipped, 4 - skipped)
        if skipped:
            assert "mean ratio 2.1 exceeds the threshold 2" in stats.problems[0]
            assert changed(before, trainer) == set() and math.isnan(stats.grad_norm)
            assert stats.sums.mean_ratio == pytest.approx(2.1, rel=1e-4) and stats.sums.ratio_variance == pytest.approx(0, abs=1e-6)


# --- bad numbers -------------------------------------------------------------------------------------------------------------


def spoil_episode(monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """One model output of the episodes whose prompt is "w4" becomes NaN: 0 the logits, 1 the hidden states."""
    original = ResponseModel.forward

    def spoiled(self: ResponseModel, batch: TokenBatch) -> tuple[Tensor, ...]:
        outputs = list(original(self, batch))
        alone = (batch.prompt_mask.sum(dim=1) == 1)[:, None].expand_as(batch.mask)[batch.mask]
        outputs[which] = torch.where(alone[:, None], torch.nan, outputs[which])
        return tuple(outputs)

    monkeypatch.setattr(ResponseModel, "forward", spoiled)


@pytest.mark.parametrize(("which", "name", "micro"), [(0, "policy loss", 1), (1, "value loss", 0)])
def test_a_bad_loss_names_quantity_episode_and_prompt(
    make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch, which: int, name: str, micro: int
) -> None:
    trainer = make_trainer(ppo={"micro_batch_size": micro, "mini_batch_size": 8})
    rollout = play(trainer)
    before = weights(trainer)
    spoil_episode(monkeypatch, which)
    with pytest.raises(NonFiniteError, match=f"the {name} is not finite") as caught:
        trainer.updater.update(rollout, 0, torch.Generator().manual_seed(0))
    episode = int(str(caught.value).split("episode ")[1].split(",")[0])
    assert rollout.prompts[episode] == "w4" and "prompt 'w4'" in str(caught.value)
    assert changed(before, trainer) == set()


def test_a_bad_kl_in_the_loss_is_named(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(ppo={"kl_placement": "loss", "kl_estimator": "k3"})
    rollout = play(trainer)
    with pytest.raises(NonFiniteError, match="the KL in the loss is not finite"):
        trainer.updater.update(replace(rollout, ref_logprobs=rollout.ref_logprobs + 200), 0, torch.Generator())


def test_bad_minibatches_can_be_left_out(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(ppo={"mini_batch_size": 1, "ppo_epochs": 1}, engine={"non_finite": "skip"})
    rollout = play(trainer)
    spoil_episode(monkeypatch, 0)
    stats = trainer.updater.update(rollout, 0, torch.Generator().manual_seed(0))
    bad = rollout.prompts.count("w4")
    assert bad > 0 and (len(stats.problems), stats.optimizer_steps) == (bad, 8 - bad)
    assert all(torch.isfinite(tensor).all() for tensor in weights(trainer).values())


# --- precision ---------------------------------------------------------------------------------------------------------------


def test_bfloat16(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer("llama", lora=LORA, model={"dtype": "bfloat16"})
    rollout = play(trainer)
    for name in ("logprobs", "ref_logprobs", "values", "entropy", "rewards", "advantages", "returns"):
        assert getattr(rollout, name).dtype == torch.float32, name
    before = weights(trainer)
    for _ in range(2):
        metrics = trainer.step().metrics
        assert metrics["policy/first_log_ratio"] < 0.1
        assert math.isfinite(metrics["loss/policy_avg"]) and math.isfinite(metrics["optim/grad_norm"])
    assert changed(before, trainer) == {"model", "value_head"}
    assert {parameter.dtype for parameter in trainer.updater.gradients.parameters} == {torch.float32}
    frozen = {parameter.dtype for parameter in trainer.models.policy.model.parameters() if not parameter.requires_grad}
    assert frozen == {torch.bfloat16}
