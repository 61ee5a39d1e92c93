"""The planner's count of adapter weights, from config.json alone, against peft's own adapters on models without numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from rlhf_studio.config.io import parse_config
from rlhf_studio.inputs.estimate.counts import trained_parameters
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.shape import read_shape

SIZES = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 32}
FEW_KEYS = {**SIZES, "num_key_value_heads": 2}


def planned(kind: str, r: int, sizes: dict[str, Any], **lora: bool) -> int | None:
    config = AutoConfig.for_model(kind, **sizes).to_dict()
    adapters = {"enabled": True, "r": r, "target_modules": "auto", **lora}
    run = parse_config({"reward": {"components": [{"kind": "length"}]}, "lora": adapters})
    return trained_parameters(run, ModelFacts(path=None, architecture="A", shape=read_shape(config)))


def added(kind: str, r: int, sizes: dict[str, Any], **lora: Any) -> int:
    """Numbers that peft's adapters have, on a model with shapes and no numbers."""
    transposed = kind == "gpt2"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))
        settings = LoraConfig(task_type="CAUSAL_LM", r=r, target_modules="all-linear", fan_in_fan_out=transposed, **lora)
        adapted = get_peft_model(model, settings)
    return sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("llama", FEW_KEYS),
        ("qwen3", {**FEW_KEYS, "head_dim": 16}),  # the queries are wider than the residual stream
        ("gemma", {**FEW_KEYS, "head_dim": 16}),
        ("phi3", {**FEW_KEYS, "pad_token_id": 0}),  # one layer for queries, keys and values, one for gate and inner values
        ("gpt_neox", SIZES),
        ("gpt2", {"n_embd": 64, "n_layer": 3, "n_head": 8, "vocab_size": 32}),
        ("opt", {"hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 160, "num_hidden_layers": 3, "num_attention_heads": 8}),
    ],
)
def test_adapters_are_counted_as_peft_adds_them(kind: str, sizes: dict[str, Any]) -> None:
    assert planned(kind, 5, sizes) == added(kind, 5, sizes)


def test_the_column_lengths_of_dora_are_counted() -> None:
    assert planned("llama", 5, FEW_KEYS, use_dora=True) == added("llama", 5, FEW_KEYS, use_dora=True)
