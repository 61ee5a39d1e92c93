"""The faster parts compute what the slower ones did."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from rlhf_studio.engine.compute.fused import CHUNK_ELEMENTS, consume_logits, fuse_activations
from rlhf_studio.ppo.logprobs import token_logprobs_and_entropy


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


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("with_entropy", [True, False])
def test_consumed_logits_give_the_plain_numbers_and_gradients(
    monkeypatch: pytest.MonkeyPatch, temperature: float, with_entropy: bool
) -> None:
    monkeypatch.setitem(CHUNK_ELEMENTS, "cpu", 7 * 3)  # several blocks, the last one shorter
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(11, 5, generator=generator, dtype=torch.float32)
    ids = torch.randint(0, 7, (11,), generator=generator)
    ids[ids == 3] = 4
    weights = torch.randn(2, 11, generator=generator)
    actual = []
    for way in ("ours", "plain"):
        matrix = torch.randn(5, 7, generator=torch.Generator().manual_seed(1)).requires_grad_()
        impossible = torch.zeros(7).index_fill(0, torch.tensor([3]), -torch.inf)  # a token that cannot be sampled
        logits = hidden @ matrix * 4 + impossible
        logprobs, entropy = (
            consume_logits(logits, ids, temperature, with_entropy=with_entropy)
            if way == "ours"
            else token_logprobs_and_entropy(logits, ids, temperature)
        )
        loss = (weights[0] * logprobs).sum() + ((weights[1] * entropy).sum() if with_entropy else 0.0)
        loss.backward()
        actual.append((logprobs.detach(), entropy.detach() if with_entropy else torch.zeros(11), matrix.grad))
    for ours, plain in zip(*actual, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=5e-6)


def test_consumed_logits_make_no_second_copy() -> None:
    """The gradient that reaches the output layer lies in the logits' own memory."""
    leaf = torch.randn(6, 9).requires_grad_()
    logits = leaf * 1.0
    recorded = []
    logits.register_hook(lambda gradient: recorded.append(gradient.data_ptr()))
    consume_logits(logits, torch.zeros(6, dtype=torch.long), 1.0)[0].sum().backward()
    assert recorded == [logits.data_ptr()]
