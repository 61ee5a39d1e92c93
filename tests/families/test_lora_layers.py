"""LoRA on models whose linear layers are not all alike: routers, grouped products, state-space blocks, shared weights."""

from __future__ import annotations

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer

from rlhf_studio.config import LoraConfig
from rlhf_studio.engine.models.adapters import add_lora
from rlhf_studio.engine.models.merging import can_merge, merged_adapters
from tests.families.tiny import tiny_model


def adapted(model_type: str, targets: str = "auto") -> PeftModel:
    model = add_lora(tiny_model(model_type), LoraConfig(enabled=True, r=4, target_modules=targets)).eval()
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    return model


@pytest.mark.parametrize(("model_type", "left_out"), [("llama4_text", "router"), ("phimoe", "router"), ("falcon_h1", "out_proj")])
def test_auto_adapts_what_can_be_adapted(model_type: str, left_out: str) -> None:
    model = adapted(model_type)
    layers = {name.rsplit(".", 1)[-1] for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}
    assert "q_proj" in layers and left_out not in layers
    ids = torch.arange(5, 15)[None]
    model(input_ids=ids).logits.sum().backward()
    assert all(parameter.grad is not None for name, parameter in model.named_parameters() if "lora_B" in name and "self_attn" in name)


@pytest.mark.parametrize(("model_type", "targets"), [("zamba", "auto"), ("gpt2", "c_attn,lm_head")])
def test_merging_leaves_shared_weights_alone(model_type: str, targets: str) -> None:
    """A matrix that two layers use would get both adapters' changes, or change the embedding with the output layer."""
    model = adapted(model_type, targets)
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False).logits
        with merged_adapters(model):
            merged = model(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(merged, expected, atol=1e-3, rtol=0)
    assert not can_merge(model)
