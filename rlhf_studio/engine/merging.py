"""LoRA added into the base weights for a while, and taken out again without a trace."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import nn


@contextlib.contextmanager
def merged_adapters(model: PeftModel) -> Iterator[None]:
    """Inside, every plain LoRA layer computes with W + ΔW as one matrix; afterwards the very same W is back.

    Layers where that is not the same function up to rounding, or not possible, stay as they are: DoRA, quantised bases,
    trained biases, half-precision weights (adding ΔW to them would round it away), weights that another layer uses too.
    """
    shared = _shared_weights(model)
    layers = [layer for layer in model.modules() if isinstance(layer, LoraLayer) and _can_merge(layer, shared)]
    weights = [layer.get_base_layer().weight for layer in layers]
    originals = [weight.data for weight in weights]
    try:
        with torch.no_grad():
            for layer, weight in zip(layers, weights, strict=True):
                delta = sum(layer.get_delta_weight(name) for name in layer.active_adapters if name in layer.lora_A)
                weight.data = weight.data + delta
                layer._disable_adapters = True  # peft's own switch would also stop the adapters' gradients
        yield
    finally:
        for layer, weight, original in zip(layers, weights, originals, strict=True):
            weight.data = original
            layer._disable_adapters = False


def can_merge(model: PeftModel) -> bool:
    """Whether :func:`merged_adapters` reaches every LoRA layer."""
    shared = _shared_weights(model)
    return all(_can_merge(layer, shared) for layer in model.modules() if isinstance(layer, LoraLayer))


def _shared_weights(model: PeftModel) -> set[int]:
    """``id`` of every parameter that the model has under more than one name: tied embeddings, blocks that share their matrices."""
    counts = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return {number for number, count in counts.items() if count > 1}


def _can_merge(layer: LoraLayer, shared: set[int]) -> bool:
    weight = getattr(layer.get_base_layer(), "weight", None)
    plain = not any(layer.use_dora.values()) and not any(layer.lora_bias.values()) and not layer.merged and not layer.disable_adapters
    whole = isinstance(weight, nn.Parameter) and type(weight) is nn.Parameter and weight.dtype is torch.float32
    return plain and whole and id(weight) not in shared
