"""The sizes in a model's config.json: are they possible sizes, and do they fit the weights in the same folder?

Loading believes config.json: it builds what that describes and only then looks at the weights. A size that is a word, below zero, or a
billion is found here, before anything is built.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.models.safetensors_header import TensorInfo
from rlhf_studio.inputs.models.shape import EXPERTS, HEADS, HIDDEN, INNER, LAYERS
from rlhf_studio.language import S_

ALL_LAYERS = (*LAYERS, "decoder_layers", "num_decoder_layers", "num_blocks", "num_layers_per_stack", "num_hidden_groups")
ALL_WIDTHS = (*HIDDEN, "emb_dim", "embedding_dim", "embedding_size", "word_embed_proj_dim", "input_embedding_size",
    "output_embedding_size")  # fmt: skip
ALL_INNER = (*INNER, "ffn_hidden_size", "moe_intermediate_size", "shared_expert_intermediate_size", "decoder_ffn_dim",
    "expert_ffn_hidden_size")  # fmt: skip
ALL_HEADS = (*HEADS, "attention_heads", "decoder_attention_heads", "num_key_value_heads", "num_kv_heads", "head_dim",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "qk_nope_head_dim", "v_head_dim")  # fmt: skip
VOCABULARIES = ("vocab_size", "decoder_vocab_size")
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "max_target_positions")
FROM_ONE = (*ALL_LAYERS, *ALL_WIDTHS, *ALL_HEADS, *VOCABULARIES, *POSITIONS)
FROM_ZERO = (*ALL_INNER, *EXPERTS, "moe_num_experts", "num_experts_per_tok", "num_experts_per_token", "sliding_window", "window_size",
    "kv_lora_rank", "q_lora_rank", "encoder_layers", "type_vocab_size", "num_nextn_predict_layers")  # fmt: skip
RATES = re.compile(r"(\w+_)?(dropout|pdrop)(_prob|_rate)?")
POSITIVE = ("layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps", "norm_eps", "initializer_range", "init_std")
EMBEDDINGS = re.compile(r"(^|\.)(embed_tokens|wte|embed_in|word_embeddings|tokens_embed|tok_embeddings)\.weight$")
STACK = re.compile(r"(.*?)\.(\d+)\.")
BYTES_PER_WEIGHT = 0.5  # at least: 4-bit weights


def check_numbers(name: str, config: dict[str, Any]) -> None:
    """Raises :class:`ModelError` for the first known size in config.json (or in its text part) that cannot be one."""
    for key, part in (("", config), ("text_config", config.get("text_config"))):
        if part is None:
            continue
        if not isinstance(part, dict):
            raise ModelError(f"config.json of {name} says {key} {_short(part)}; it must be a JSON object")
        for wrong, needed in _wrong_numbers(part):
            setting = f"{key}.{wrong}" if key else wrong
            raise ModelError(f"config.json of {name} says {setting} {_short(part[wrong])}; it must be {needed}")


def check_against_weights(name: str, config: dict[str, Any], tensors: dict[str, TensorInfo], stored_bytes: int) -> None:
    """Raises :class:`ModelError` when config.json describes another model than the weights are.

    Args:
        config: config.json. Where it has a part for text, the values of that part replace the outer ones of the same name.
        tensors: the weights' names and shapes; empty when they are only on the hub.
        stored_bytes: size of all weight files; 0 when unknown.
    """
    for claim in _misfits(config, tensors, stored_bytes):
        raise ModelError(f"config.json of {name} says {claim}; they do not belong together")


def _misfits(config: dict[str, Any], tensors: dict[str, TensorInfo], stored_bytes: int) -> Iterator[str]:
    if tensors:
        yield from _layer_misfits(config, tensors)
        yield from _embedding_misfits(config, tensors)
        largest = max((max(tensor.shape, default=0) for tensor in tensors.values()), default=0)
        for key, size in _sizes(config, (*ALL_WIDTHS, *ALL_INNER)):
            if size > largest:
                yield S_(f"{key} {size:,}, but no side of a matrix in its weights is longer than {largest:,}")
    least = _least_weights(config)
    if stored_bytes and least * BYTES_PER_WEIGHT > stored_bytes:
        sizes = ", ".join(f"{key} {size:,}" for key, size in _sizes(config, (*ALL_LAYERS, *ALL_WIDTHS, *VOCABULARIES)))
        yield S_(f"{sizes}, which makes more than {least:,} weights, but its files hold only {stored_bytes:,} bytes")


def _layer_misfits(config: dict[str, Any], tensors: Iterable[str]) -> Iterator[str]:
    """Layers are numbered in the weights' names: ``model.layers.11.mlp.up_proj.weight`` belongs to the twelfth."""
    claimed = _sizes(config, ALL_LAYERS)
    stacks: dict[str, int] = {}
    for name in tensors:
        if match := STACK.match(name):
            stacks[match[1]] = max(stacks.get(match[1], 0), int(match[2]) + 1)
    if not claimed or not stacks:
        return
    key, least = min(claimed, key=lambda entry: entry[1])
    if least > max(stacks.values()):
        yield S_(f"{key} {least:,}, but the layers in its weights are {max(stacks.values()):,}")
    extra = dict(_sizes(config, ("num_nextn_predict_layers",))).get("num_nextn_predict_layers", 0)
    layers = _sizes(config, LAYERS)  # the other names may count a part only
    key, most = max(layers, key=lambda entry: entry[1], default=("", 0))
    if layers and len(stacks) == 1 and max(stacks.values()) > most + extra:
        yield S_(f"{key} {most:,}, but the layers in its weights are {max(stacks.values()):,}, and the rest would be left out")


def _embedding_misfits(config: dict[str, Any], tensors: dict[str, TensorInfo]) -> Iterator[str]:
    shapes = {name: tensor.shape for name, tensor in tensors.items() if EMBEDDINGS.search(name) and len(tensor.shape) == 2}
    for axis, keys, side in ((0, VOCABULARIES, "rows"), (1, ALL_WIDTHS, "columns")):
        claimed = _sizes(config, keys)
        right = {size + more for _, size in claimed for more in ((0, 1) if axis == 0 else (0,))}  # speech models start with one token more
        if shapes and claimed and not right & {shape[axis] for shape in shapes.values()}:
            name, shape = next(iter(shapes.items()))
            yield S_(f"{claimed[0][0]} {claimed[0][1]:,}, but {name[:80]} in its weights has {shape[axis]:,} {side}")


def _least_weights(config: dict[str, Any]) -> int:
    """Fewer weights than any model of these sizes has: one vector per token and per layer, each as wide as the smallest width."""
    width = min((size for _, size in _sizes(config, ALL_WIDTHS)), default=1)
    counts = [min((size for _, size in _sizes(config, keys)), default=0) for keys in (VOCABULARIES, ALL_LAYERS)]
    return width * sum(counts)


def _sizes(config: dict[str, Any], keys: tuple[str, ...]) -> list[tuple[str, int]]:
    return [(key, config[key]) for key in keys if type(config.get(key)) is int]


def _wrong_numbers(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys whose values are not possible, each with the values that are."""
    for key, value in config.items():
        if value is None:
            continue
        if key in FROM_ONE and not _is_size(value, 1):
            yield key, S_("a whole number from 1")
        elif key in FROM_ZERO and not _is_size(value, 0):
            yield key, S_("a whole number from 0")
        elif key in POSITIVE and not (_is_number(value) and value > 0):
            yield key, S_("a number above 0")
        elif RATES.fullmatch(key) and not (type(value) is bool or (_is_number(value) and 0 <= value <= 1)):
            yield key, S_("a number from 0 to 1")


def _is_size(value: Any, least: int) -> bool:
    """Whether this is one size, or a list of one size per layer."""
    values = value if isinstance(value, list) else [value]
    return all((type(each) is int and each >= least) or (each is None and isinstance(value, list)) for each in values)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
