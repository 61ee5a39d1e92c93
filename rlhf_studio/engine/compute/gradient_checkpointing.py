"""Gradient checkpointing: less memory for activations, at the cost of a second forward pass of each layer."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def enable_gradient_checkpointing(model: nn.Module) -> int:
    """Let each layer of the model keep only its input for the backward pass. Returns the number of layers that now do.

    transformers' own switch works in training mode only, which would turn dropout on; PPO runs with dropout off. Without gradients
    (sampling, scoring) nothing changes, and the key-value cache works as before. Gradients are the same up to rounding: in training mode,
    where a layer may draw random numbers for its dropout, the second forward pass draws the same ones. torch's non-reentrant variant is
    used: the reentrant one would lose the gradients of LoRA when the layer's input needs no gradient, as it does behind a frozen embedding.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        # A bound method, so that a deep copy of the layer uses its own weights.
        layer.forward = MethodType(_recomputed_forward, layer)
    return len(layers)


def computes_again(model: nn.Module) -> bool:
    """Whether layers of the model compute their forward pass a second time in the backward pass: by our switch, or by transformers' own."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    return any(layer.gradient_checkpointing or getattr(layer.forward, "__func__", None) is _recomputed_forward for layer in layers)


def _recomputed_forward(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    forward = type(layer).forward
    if not torch.is_grad_enabled():
        return forward(layer, *args, **kwargs)
    return checkpoint(forward, layer, *args, use_reentrant=False, preserve_rng_state=layer.training, **kwargs)
