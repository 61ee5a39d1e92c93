"""Gradient checkpointing: the same gradients, each layer computed twice, and nothing changed where no gradients are wanted."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from rlhf_studio.config import LoraConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.gradient_checkpointing import enable_gradient_checkpointing
from rlhf_studio.engine.loop import build
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import add_lora
from tests.engine.small_models import config_of

IDS = torch.tensor([[2, 3, 4, 5, 6], [7, 8, 9, 2, 3]])


def gradients(model: nn.Module) -> dict[str, Tensor]:
    model.zero_grad()
    logits = model(input_ids=IDS, attention_mask=torch.ones_like(IDS), use_cache=False).logits
    (logits.square().mean() + logits.float().logsumexp(-1).mean()).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def make_model(family: str, lora: bool) -> nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config_of(family, 30)).eval()
    return add_lora(model, LoraConfig(enabled=True, r=4)).eval() if lora else model


@pytest.mark.parametrize(("family", "lora"), [("gpt2", False), ("gemma2", True), ("falcon", False)])
def test_the_gradients_are_the_same(family: str, lora: bool) -> None:
    model = make_model(family, lora)
    expected = gradients(model)
    assert enable_gradient_checkpointing(model) == 2
    actual = gradients(model)
    assert actual.keys() == expected.keys() and len(actual) > 4
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, atol=1e-6, rtol=1e-5)
    assert not any(module.training for module in model.modules())  # dropout stays off


def test_each_layer_runs_twice_with_gradients_and_once_without() -> None:
    model = make_model("llama", False)
    counted: list[str] = []
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: counted.append("mlp"))
    enable_gradient_checkpointing(model)
    with torch.no_grad():
        model(IDS)
    assert len(counted) == 1
    gradients(model)
    assert len(counted) == 1 + 2


def test_a_copy_uses_its_own_weights() -> None:
    """The reference of a full fine-tune is a deep copy: it must not run the policy's layers."""
    model = make_model("llama", False)
    enable_gradient_checkpointing(model)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        before = copied(IDS).logits
        for parameter in model.parameters():
            parameter.add_(1.0)
        torch.testing.assert_close(copied(IDS).logits, before, rtol=0, atol=0)


def test_a_run_is_the_same_with_and_without(make_trainer: Callable[..., Trainer]) -> None:
    lora = {"enabled": True, "r": 4}
    plain = make_trainer("gpt2", lora=lora)
    saving = make_trainer("gpt2", lora=lora, model={"gradient_checkpointing": True})
    for _ in range(2):
        expected, actual = plain.step().metrics, saving.step().metrics
        for name in expected:
            if not name.startswith(("time/", "speed/", "memory/")):
                assert actual[name] == pytest.approx(expected[name], abs=2e-5, nan_ok=True), name


def test_a_model_whose_layers_cannot_be_computed_again(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "enable_gradient_checkpointing", lambda model: 0)
    with pytest.raises(ConfigError, match="has no layers that can be computed again") as caught:
        make_trainer("gpt2", model={"gradient_checkpointing": True})
    assert caught.value.problems[0].field == "model.gradient_checkpointing"


def test_memory_is_saved(tmp_path: Path) -> None:
    """Bytes that the backward pass keeps, counted by torch's own hook: clearly fewer with four layers."""

    def kept(model: nn.Module) -> int:
        total = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(input_ids=IDS, use_cache=False).logits.sum()
        return total

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config_of("llama", 30, layers=4)).eval()
    before = kept(model)
    enable_gradient_checkpointing(model)
    assert kept(model) < 0.5 * before
