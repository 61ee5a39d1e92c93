"""A reference that follows the policy: ref <- (1 - s) ref + s policy, weight by weight."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.loop.trainer import Trainer


@pytest.mark.parametrize(("family", "lora"), [("gpt2", {}), ("llama", {"enabled": True, "r": 4})], ids=["full", "lora"])
def test_the_average_by_hand(make_trainer: Callable[..., Trainer], family: str, lora: dict[str, Any]) -> None:
    trainer = make_trainer(family, lora=lora, ppo={"reference_ema": 0.25, "learning_rate": 1e-2})
    reference, model = trainer.models.reference, trainer.models.policy.model
    expected = {name: weight.clone() for name, weight in reference.weights().items()}
    for _ in range(2):
        trainer.step()
        plain = copy.deepcopy(model)
        now = dict((plain.merge_and_unload() if lora else plain).named_parameters())  # type: ignore[operator]
        expected = {name: 0.75 * weight + 0.25 * now[name].detach() for name, weight in expected.items()}
    for name, weight in reference.weights().items():
        torch.testing.assert_close(weight, expected[name], atol=1e-6, rtol=1e-5)
    assert not any(weight.requires_grad for weight in reference.weights().values())


def test_one_makes_the_reference_the_policy(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(ppo={"reference_ema": 1.0, "learning_rate": 1e-2})
    trainer.step()
    assert abs(trainer.step().metrics["objective/kl"]) < 1e-4


def test_not_with_dora(make_trainer: Callable[..., Trainer]) -> None:
    with pytest.raises(ConfigError, match="ppo.reference_ema: .*plain LoRA"):
        make_trainer("llama", lora={"enabled": True, "use_dora": True}, ppo={"reference_ema": 0.1})
