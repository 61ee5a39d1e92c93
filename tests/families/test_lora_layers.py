"""LoRA on models whose linear layers are not all alike: routers, grouped products, state-space blocks, shared weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from transformers import AutoModelForCausalLM

from rlhf_studio.config import LoraConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.config.model import ModelConfig
from rlhf_studio.engine.models.adapters import add_lora, name_base, save_model
from rlhf_studio.engine.models.merging import can_merge, merged_adapters
from rlhf_studio.inputs.checks.policy import adapter_problems
from rlhf_studio.inputs.models.facts import ModelFacts
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


@pytest.mark.parametrize("model_type", ["qwen3_moe", "mixtral"])
def test_fused_experts_refuse_at_the_door_what_needs_a_matrix(model_type: str) -> None:
    """Experts that lie in one tensor have no matrix to split; layers outside of them have. The engine gives a sentence too."""
    facts = ModelFacts(None, "", model_type=model_type)
    for start in ("orthogonal", "pissa", "olora"):
        settings = LoraConfig(enabled=True, r=4, init_lora_weights=start)
        (problem,) = adapter_problems(ModelConfig(policy="m"), settings, facts)
        assert problem.field == "lora.init_lora_weights" and "gaussian" in problem.message
        with pytest.raises(ConfigError, match="lora.init_lora_weights"):
            add_lora(tiny_model(model_type), settings)
        outside = settings.model_copy(update={"target_modules": "q_proj,v_proj"})
        assert not list(adapter_problems(ModelConfig(policy="m"), outside, facts))
        assert add_lora(tiny_model(model_type), outside)
    for other in ({"dropout": 0.1}, {"use_dora": True}):
        (problem,) = adapter_problems(ModelConfig(policy="m"), LoraConfig(enabled=True, **other), facts)
        assert problem.field == f"lora.{next(iter(other))}"
    for right in ("default", "gaussian"):
        assert not list(adapter_problems(ModelConfig(policy="m"), LoraConfig(enabled=True, init_lora_weights=right), facts))


@pytest.mark.parametrize("start", ["pissa", "olora"])
def test_a_matrix_with_fewer_rows_than_the_rank_is_saved_so_that_it_loads(tmp_path: Path, start: str) -> None:
    """The gate of the shared expert has one row: its factors had one too, and plain peft refused the saved adapter."""
    model = add_lora(tiny_model("qwen2_moe"), LoraConfig(enabled=True, r=4, alpha=8, init_lora_weights=start)).eval()
    ids = torch.arange(5, 25)[None]
    expected = model(input_ids=ids).logits
    torch.testing.assert_close(expected, tiny_model("qwen2_moe").eval()(input_ids=ids).logits, atol=1e-4, rtol=1e-4)
    name_base(model, None, "main")
    save_model(model, tmp_path / "adapter", tmp_path / "base")
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    torch.testing.assert_close(loaded(input_ids=ids).logits, expected, atol=1e-5, rtol=1e-5)
