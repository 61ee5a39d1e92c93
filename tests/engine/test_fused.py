"""The faster parts compute what the slower ones did."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from rlhf_studio.engine.fused import fuse_activations


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_fast"])
def test_logits_and_gradients_equal_those_of_the_written_out_gelu(activation: str) -> None:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=24, n_layer=3, n_head=2, activation_function=activation)
    plain = GPT2LMHeadModel(config).eval()
    fused = copy.deepcopy(plain)
    assert fuse_activations(fused) == 3
    ids = torch.randint(0, 40, (4, 12))
    for model in (plain, fused):
        model(input_ids=ids, labels=ids).loss.backward()
    torch.testing.assert_close(fused(input_ids=ids).logits, plain(input_ids=ids).logits, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6)


def test_other_activations_stay() -> None:
    config = LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    model = LlamaForCausalLM(config)
    before = [type(module) for module in model.modules()]
    assert fuse_activations(model) == 0
    assert [type(module) for module in model.modules()] == before
    assert not any(isinstance(module, nn.GELU) for module in model.modules())
