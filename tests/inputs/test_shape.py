"""The sizes inside a model: read from config.json by hand, and what makes them unknown."""

from __future__ import annotations

import pytest

from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.shape import ModelShape, read_shape

GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "n_inner": None, "vocab_size": 10, "activation_function": "gelu_new"}
LLAMA = {
    **{"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"intermediate_size": 20, "vocab_size": 10, "hidden_act": "silu", "tie_word_embeddings": False},
}


def test_shapes_by_hand() -> None:
    gpt2 = read_shape(GPT2)
    assert gpt2 == ModelShape(layers=2, hidden=8, cached=16, inner=32, gated=False, vocabulary=10, tied=True, one_attention_layer=True)
    assert gpt2.layers_of_a_block == [(8, 24), (8, 8), (8, 32), (32, 8)]
    assert gpt2.saved_per_token == 2 * (8 * 8 + 2 * 32)
    assert gpt2.parameters == 10 * 8 + 2 * (8 * 32 + 2 * 8 * 32)
    llama = read_shape(LLAMA)
    assert llama == ModelShape(layers=3, hidden=8, cached=8, inner=20, gated=True, vocabulary=10, tied=False)
    assert llama.saved_per_token == 3 * (8 * 8 + 4 * 20)
    assert llama.parameters == 2 * 10 * 8 + 3 * (8 * (16 + 8) + 3 * 8 * 20)
    assert llama.layers_of_a_block == [(8, 8), (8, 4), (8, 4), (8, 8), (8, 20), (8, 20), (20, 8)]
    assert read_shape({**LLAMA, "model_type": "phi3"}).layers_of_a_block == [(8, 16), (8, 8), (8, 40), (20, 8)]
    wide = read_shape({**LLAMA, "head_dim": 5})
    assert wide.cached == 2 * 2 * 5 and wide.layers_of_a_block[:4] == [(8, 20), (8, 10), (8, 10), (20, 8)]
    assert read_shape({**GPT2, "multi_query": True}).cached == 2 * 1 * 4


def test_the_count_by_shape_is_that_of_the_bundled_model() -> None:
    """With its 512 position vectors added; what is left are norms and biases, less than 1 in a hundred."""
    known = check_causal_lm("bundled/world-policy")
    assert known.shape is not None and known.parameters == pytest.approx(known.shape.parameters + 512 * known.shape.hidden, rel=0.01)


@pytest.mark.parametrize("missing", ["n_layer", "n_embd", "n_head", "vocab_size"])
def test_a_missing_size_means_unknown(missing: str) -> None:
    assert read_shape({**GPT2, missing: None}) is None


def test_an_unknown_inner_size_and_experts_mean_unknown() -> None:
    assert read_shape({**GPT2, "model_type": "something_new"}) is None
    assert read_shape({**GPT2, "model_type": "something_new", "n_inner": 32}) is not None
    assert read_shape({**LLAMA, "num_local_experts": 8}) is None
