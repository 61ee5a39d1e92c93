"""The sizes inside a model that decide its memory: read from config.json, or unknown when that does not tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
INNER = ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
FOUR_TIMES = {"gpt2", "gpt_neo", "gptj", "bloom", "gpt_bigcode", "codegen", "falcon", "mpt"}  # inner size 4 × hidden when it is not given
GATED = {"silu", "swish"}  # in today's models these always come with a gate: three matrices instead of two

ONE_ATTENTION_LAYER = {"gpt2", "gpt_bigcode", "gpt_neox", "bloom", "codegen", "falcon", "mpt", "persimmon", "phi3"}
"""Kinds of models in which one layer makes queries, keys and values. In the others each has a layer of its own."""
GATE_IN_INNER_LAYER = {"glm", "glm4", "phi3"}
"""Kinds of models in which one layer makes the feed-forward part's gate and its inner values."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder or encoder.

    Attributes:
        layers: number of blocks.
        hidden: width H of the residual stream.
        cached: values that the key-value cache keeps per token and layer: 2 × key heads × head size.
        inner: width F of the feed-forward part.
        gated: whether the feed-forward part has a gate, and so three matrices.
        vocabulary: tokens V.
        tied: whether the output layer is the embedding.
        queries: values of all queries of a token: heads × head size. None means H, as in most models.
        one_attention_layer: whether queries, keys and values come from one layer; else from three.
        gate_in_inner_layer: whether the gate comes from the same layer as the inner values.
    """

    layers: int
    hidden: int
    cached: int
    inner: int
    gated: bool
    vocabulary: int
    tied: bool
    queries: int | None = None
    one_attention_layer: bool = False
    gate_in_inner_layer: bool = False

    @property
    def layers_of_a_block(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of every linear layer of one block."""
        hidden, inner, key = self.hidden, self.inner, self.cached // 2
        queries = self.queries or hidden
        attention = [(hidden, queries + 2 * key)] if self.one_attention_layer else [(hidden, queries), (hidden, key), (hidden, key)]
        if self.gated:
            inwards = [(hidden, 2 * inner)] if self.gate_in_inner_layer else [(hidden, inner), (hidden, inner)]
        else:
            inwards = [(hidden, inner)]
        return [*attention, (queries, hidden), *inwards, (inner, hidden)]

    @property
    def saved_per_token(self) -> int:
        """Values per token that one forward pass keeps for the backward pass.

        Per block: two norms' inputs and outputs (4 H), queries, keys and values (3 H), the attention's result (H), and the
        feed-forward part's inner values before and after the activation (2 F; with a gate 4 F).
        """
        return self.layers * (8 * self.hidden + (4 if self.gated else 2) * self.inner)

    @property
    def parameters(self) -> int:
        """Number of weights by this shape; norms and biases, well below one in a hundred, are left out."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.block_parameters

    @property
    def block_parameters(self) -> int:
        """Number of weights in the matrices of all blocks."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.layers_of_a_block)


def read_shape(config: dict[str, Any]) -> ModelShape | None:
    """The shape that a model's config.json tells, or None when a size is missing or the model mixes experts."""
    layers, hidden, heads, vocabulary = (_first(config, names) for names in (LAYERS, HIDDEN, HEADS, ("vocab_size",)))
    inner = _first(config, INNER)
    if inner is None and hidden is not None and config.get("model_type") in FOUR_TIMES:
        inner = 4 * hidden
    if layers is None or hidden is None or heads is None or inner is None or vocabulary is None or _first(config, EXPERTS):
        return None
    key_heads = 1 if config.get("multi_query") is True else _first(config, ("num_key_value_heads",)) or heads
    head_size = _first(config, ("head_dim",)) or hidden // heads
    activation = config.get("hidden_act") or config.get("hidden_activation") or config.get("activation_function")
    gated = activation in GATED or str(config.get("model_type")).startswith("gemma")
    kind = config.get("model_type")
    return ModelShape(
        layers=layers,
        hidden=hidden,
        cached=2 * key_heads * head_size,
        inner=inner,
        gated=gated,
        vocabulary=vocabulary,
        tied=config.get("tie_word_embeddings") is not False,
        queries=None if heads * head_size == hidden else heads * head_size,
        one_attention_layer=kind in ONE_ATTENTION_LAYER,
        gate_in_inner_layer=kind in GATE_IN_INNER_LAYER,
    )


def _first(config: dict[str, Any], names: tuple[str, ...]) -> int | None:
    values = (config.get(name) for name in names)
    return next((value for value in values if type(value) is int and value > 0), None)
