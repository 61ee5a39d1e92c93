"""LoRA added into the base weights for a while, and taken out again without a trace.

Only layers whose change is known in full are merged: a matrix or an embedding of the ordinary kind with its two factors, and nothing else.
Whatever else an adapter may keep, now or in later versions of peft, leaves its layer as it is.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import Embedding, Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from torch import nn
from transformers.pytorch_utils import Conv1D

FACTORS = {
    Linear: ("lora_A.{}.weight", "lora_B.{}.weight"),
    Embedding: ("lora_embedding_A.{}", "lora_embedding_B.{}"),
}
"""peft's layers that are merged -> the names of all that an adapter keeps there."""


@contextlib.contextmanager
def merged_adapters(model: PeftModel) -> Iterator[None]:
    """Inside, every plain LoRA layer computes with W + ΔW as one matrix; afterwards the very same W is back.

    Layers where that is not the same function up to rounding, or not possible, stay as they are: DoRA, quantised bases,
    trained biases, half-precision weights (adding ΔW to them would round it away), weights that another layer uses too, and
    all that keep something which is not known here.
    """
    shared = _shared_weights(model)
    layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer) and _can_merge(layer, shared)]
    weights = [layer.get_base_layer().weight for layer in layers]
    originals = [weight.data for weight in weights]
    try:
        with torch.no_grad():
            for layer, weight in zip(layers, weights, strict=True):
                weight.data = weight.data + sum(layer.get_delta_weight(name) for name in _active(layer))
                layer._disable_adapters = True  # peft's own switch would also stop the adapters' gradients
        yield
    finally:
        for layer, weight, original in zip(layers, weights, originals, strict=True):
            weight.data = original
            layer._disable_adapters = False


def can_merge(model: PeftModel) -> bool:
    """Whether :func:`merged_adapters` reaches everything that peft has put on the model."""
    shared = _shared_weights(model)
    changed = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer | AuxiliaryTrainingWrapper)]
    return all(isinstance(layer, LoraLayer) and _can_merge(layer, shared) for layer in changed)


def _shared_weights(model: PeftModel) -> set[int]:
    """``id`` of every parameter that the model has under more than one name: tied embeddings, blocks that share their matrices."""
    counts = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return {number for number, count in counts.items() if count > 1}


def _can_merge(layer: LoraLayer, shared: set[int]) -> bool:
    weight = getattr(layer.base_layer, "weight", None)
    plain = _is_known(layer) and not layer.lora_variant and not layer.merged and not layer.disable_adapters
    whole = isinstance(weight, nn.Parameter) and type(weight) is nn.Parameter and weight.dtype is torch.float32
    return plain and whole and id(weight) not in shared


def _is_known(layer: LoraLayer) -> bool:
    """Whether the layer computes f(W + ΔW), and each adapter keeps two factors there and nothing else."""
    base = layer.base_layer
    if type(layer) is Embedding:
        ordinary = type(base) is nn.Embedding and base.max_norm is None  # others scale or shift what they look up
    else:
        ordinary = type(layer) is Linear and isinstance(base, nn.Linear | Conv1D)
    kept = {name for parts in (layer.named_parameters(), layer.named_buffers()) for name, _ in parts if not name.startswith("base_layer.")}
    return ordinary and kept == {name.format(adapter) for adapter in layer.scaling for name in FACTORS[type(layer)]}


def _active(layer: LoraLayer) -> list[str]:
    """Names of the adapters that are switched on and have factors in this layer."""
    return [name for name in layer.active_adapters if name in layer.scaling]
