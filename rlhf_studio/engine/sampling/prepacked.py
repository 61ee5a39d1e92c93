"""Prepacked weights: large matrices in the memory layout in which oneDNN multiplies by them.

A decoding step multiplies each weight matrix by a few rows only. For every product oneDNN first copies the matrix into a layout of its own
("reordering"), which then takes about as long as the product itself, and does so again for the next token. Here the copy is made once per
rollout (once per run for frozen weights), and the products of all decoding steps use it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rlhf_studio.engine.compute.lanes import LEAST_ROWS
from rlhf_studio.inputs.estimate.cpu import LEAST_NUMBERS, prepacks_weights
from rlhf_studio.inputs.estimate.device import processor

EXPECTED_ROWS = 8  # oneDNN chooses the layout for this number of rows; it works for any number
ROWS_PER_WEIGHT_READ = 16  # a core reads a large matrix from memory in the time in which it multiplies this many rows by it


def layers_to_prepack(model: nn.Module, tokens: int) -> list[nn.Module]:
    """The layers of ``model`` whose weights are worth prepacking for responses of ``tokens``. None without oneDNN or enough memory."""
    if not torch.backends.mkldnn.is_available():
        return []
    layers = [module for module in model.modules() if type(module) in (nn.Linear, Conv1D) and _is_large(weight_of(module))]
    needed = sum(weight_of(layer).nbytes for layer in layers)
    return layers if prepacks_weights(needed, processor().total, tokens) else []


def weight_of(layer: nn.Module) -> Tensor:
    """The matrix of a linear layer."""
    assert isinstance(layer.weight, Tensor)
    return layer.weight


def min_rows_per_lane(model: nn.Module, layers: Sequence[nn.Module]) -> int:
    """Rows for which a lane of their own is faster, when these ``layers`` of ``model`` are prepacked.

    Every lane reads all weights from memory for each token. When large matrices are most of the model, lanes with few rows spend most
    of their time reading; then it is faster that all threads compute one batch together, where each reads only a part of every matrix.
    """
    large = sum(weight_of(layer).numel() for layer in layers)
    return ROWS_PER_WEIGHT_READ if 2 * large > sum(weight.numel() for weight in model.parameters()) else LEAST_ROWS


def _is_large(weight: Tensor) -> bool:
    return weight.numel() >= LEAST_NUMBERS and weight.dtype is torch.float32 and weight.device.type == "cpu"


@dataclass
class PrepackedWeight:
    """One layer's weights in oneDNN's layout.

    Its memory is kept from rollout to rollout and only its content is refreshed. Freed after each rollout, it would come back to the
    allocator in pieces that the update cannot use.

    Attributes:
        layer: the layer whose weights these are.
        packed: the weights; only :func:`using_packed` can use this tensor.
        frozen: the weights are not trained, and no adapter is added to them while sampling.
        version: torch's counter of in-place changes of the layer's weights, when they were last copied.
    """

    layer: nn.Module
    packed: Tensor
    frozen: bool
    version: int

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the layer's weights as they are now, unless they are frozen and have not changed."""
        version = weight_of(self.layer)._version
        if not self.frozen or version != self.version:
            self.packed.copy_(_reorder(self.layer))
            self.version = version


@torch.no_grad()
def prepack(layers: Sequence[nn.Module], addresses: Sequence[int]) -> list[PrepackedWeight]:
    """The layers' weights as they are now.

    ``addresses`` are the weights' memory addresses (``data_ptr``) without adapters: a weight that now is at another address has an adapter
    added to it.
    """
    weights = [weight_of(layer) for layer in layers]
    frozen = [not weight.requires_grad and weight.data_ptr() == address for weight, address in zip(weights, addresses, strict=True)]
    return [PrepackedWeight(layer, _reorder(layer), stays, weight_of(layer)._version) for layer, stays in zip(layers, frozen, strict=True)]


def _reorder(layer: nn.Module) -> Tensor:
    matrix = weight_of(layer).t() if isinstance(layer, Conv1D) else weight_of(layer)
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(matrix.contiguous(), EXPECTED_ROWS)
    return packed


@contextlib.contextmanager
def using_packed(layers: Sequence[nn.Module], packed: Sequence[Tensor]) -> Iterator[None]:
    """Inside, the layers multiply by the ``packed`` weights instead of their own. For tracing; gradients do not pass through."""
    for layer, weights in zip(layers, packed, strict=True):
        layer.forward = functools.partial(_multiply, layer, weights)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the method of the class is used again


def _multiply(layer: nn.Module, packed: Tensor, x: Tensor) -> Tensor:
    product: Tensor = _product()(x, packed, layer.bias)
    return product


@functools.cache
def _product() -> Any:
    """The product as a TorchScript function: tracing cannot store the operator's empty list of scalars, scripting can."""

    def product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return result

    return torch.jit.script(product)
