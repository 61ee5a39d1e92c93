"""Gradient checkpointing: less memory for activations, paid with a second forward pass of each layer."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def enable_gradient_checkpointing(model: nn.Module) -> int:
    """Let each of the model's layers keep only its input for the backward pass; returns how many layers there are.

    transformers' own switch works in training mode only, which would turn dropout on; PPO runs with dropout off. Without gradients
    (sampling, scoring) nothing changes, so the key-value cache is used as before. Gradients are the same up to rounding: nothing in a
    layer is random, and the reentrant variant, which would lose the gradients of LoRA below a frozen embedding, is not used.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        layer.forward = MethodType(_recomputed_forward, layer)  # type: ignore[method-assign] - bound, so that a deep copy uses its own weights
    return len(layers)


def _recomputed_forward(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    forward = type(layer).forward
    if not torch.is_grad_enabled():
        return forward(layer, *args, **kwargs)
    return checkpoint(forward, layer, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
