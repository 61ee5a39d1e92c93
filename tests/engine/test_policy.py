"""The policy, its value head and its reference, for adapters and for whole models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from rlhf_studio.config import LoraConfig
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import add_lora
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.load_model import load_causal_lm
from rlhf_studio.engine.models.policy import Policy, ResponseModel
from rlhf_studio.engine.types import TokenBatch
from tests.engine.conftest import play
from tests.engine.small_models import config_of

LORA = {"enabled": True, "r": 4, "dropout": 0.3}


def adapted(model: nn.Module) -> set[str]:
    """Names of the layers that carry an adapter."""
    names = (name for name, _ in model.named_modules() if name.endswith(".lora_A"))
    return {name.removeprefix("base_model.model.").removesuffix(".lora_A") for name in names}


def logits_of(model: ResponseModel, batch: TokenBatch) -> Tensor:
    with torch.no_grad():
        return model(batch)[0].clone()


# --- adapters ----------------------------------------------------------------------------------------------------------------


def test_auto_adapts_every_linear_layer_but_the_output(tmp_path: Path) -> None:
    for family in ("gpt2", "llama", "gpt_neox"):
        base = AutoModelForCausalLM.from_config(config_of(family, 30))
        output = base.get_output_embeddings()
        linear = {name for name, module in base.named_modules() if isinstance(module, nn.Linear | Conv1D) and module is not output}
        model = add_lora(base, LoraConfig(enabled=True, r=4))
        assert adapted(model) == linear and linear, family
        assert all("lora_" in name for name, parameter in model.named_parameters() if parameter.requires_grad), family


def test_adapters_of_chosen_layers() -> None:
    base = AutoModelForCausalLM.from_config(config_of("llama", 30))
    model = add_lora(base, LoraConfig(enabled=True, r=4, target_modules=" q_proj, down_proj ,"))
    assert {name.rsplit(".", 1)[-1] for name in adapted(model)} == {"q_proj", "down_proj"}


def test_an_adapter_on_the_output_layer_still_shows_hidden_states(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer("llama", lora={**LORA, "target_modules": "lm_head"})
    assert adapted(trainer.models.policy.model) == {"lm_head"}
    assert trainer.step().metrics["policy/first_log_ratio"] < 1e-4


def test_without_its_adapters_the_policy_is_the_base_model(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    """After training, bit for bit, against the files that the run started from; and its adapters learn on after the look."""
    trainer = make_trainer("llama", lora=LORA)
    learn = {name for name, parameter in trainer.models.policy.named_parameters() if parameter.requires_grad}
    trainer.step()
    batch = play(trainer).tokens
    loaded = load_causal_lm(str(tmp_path / "policy"), "main", torch.float32, lambda text, fraction: None).model
    start = ResponseModel(loaded)
    start.enable_packing()
    base = logits_of(start, batch)
    with trainer.models.reference.active() as reference:
        assert torch.equal(logits_of(reference, batch), base)
    assert not torch.equal(logits_of(trainer.models.policy, batch), base)  # outside the block the adapters are back
    assert {name for name, parameter in trainer.models.policy.named_parameters() if parameter.requires_grad} == learn


# --- reference ---------------------------------------------------------------------------------------------------------------


def test_the_reference_copy_is_frozen_and_shares_nothing(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    with trainer.models.reference.active() as reference:
        copies = list(reference.parameters())
    assert copies and not any(parameter.requires_grad for parameter in copies)
    assert not {p.data_ptr() for p in copies} & {p.data_ptr() for p in trainer.models.policy.parameters()}
    assert not any(module.training for module in reference.modules())


# --- value head --------------------------------------------------------------------------------------------------------------


def test_a_zero_head_predicts_zero(make_trainer: Callable[..., Trainer]) -> None:
    rollout = play(make_trainer())
    assert torch.equal(rollout.values, torch.zeros_like(rollout.values))


def test_a_normal_head_has_variance_one_over_its_inputs_and_depends_on_the_seed_alone() -> None:
    head = make_value_head(512, "normal", 3)
    weight = head.weight.detach()
    assert float(weight.std()) == pytest.approx((512 + 1) ** -0.5, rel=0.12)  # four deviations of a sample of 512
    assert abs(float(weight.mean())) < 4 / 512
    assert torch.equal(head.bias, torch.zeros(1))
    torch.rand(7)
    assert torch.equal(make_value_head(512, "normal", 3).weight, head.weight)
    assert not torch.equal(make_value_head(512, "normal", 4).weight, head.weight)


def test_values_are_float32_whatever_the_trunk() -> None:
    """Under autocast a linear layer would round to bfloat16; the head does not."""
    policy = Policy(AutoModelForCausalLM.from_config(config_of("llama", 30)), make_value_head(32, "normal", 0))
    hidden = torch.randn(6, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = policy.values(hidden)
    expected = (hidden.double() @ policy.value_head.weight.double().T).squeeze(-1)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["gpt2", "opt"])
def test_hidden_states_are_what_the_output_layer_reads(make_trainer: Callable[..., Trainer], family: str) -> None:
    trainer = make_trainer(family)
    batch = play(trainer).tokens
    with torch.no_grad():
        logits, hidden = trainer.models.policy(batch)
        rebuilt = trainer.models.policy.model.get_output_embeddings()(hidden)
    torch.testing.assert_close(rebuilt, logits, atol=1e-5, rtol=1e-5)
    assert len(logits) == len(hidden) == batch.mask.sum()


def test_a_detached_trunk_gets_no_gradient_from_the_values(make_trainer: Callable[..., Trainer]) -> None:
    policy = (trainer := make_trainer(model={"value_head_init": "normal"})).models.policy
    batch = play(trainer).tokens
    for detach in (True, False):
        policy.zero_grad(set_to_none=True)
        policy.logits_and_values(batch, detach_trunk=detach)[1].sum().backward()
        assert (policy.model.get_input_embeddings().weight.grad is None) == detach
        assert policy.value_head.weight.grad is not None
