"""Weight matrices laid out once for many products with few rows.

A decoding step multiplies each of a model's matrices by a handful of rows. A product lays the matrix out for the processor first,
which then takes about as long as the arithmetic, and again for the next token. oneDNN hands that layout out and takes it back.
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
from rlhf_studio.estimate.cpu import LEAST_NUMBERS, prepacks_weights
from rlhf_studio.estimate.device import processor

ROWS = 8  # the layout is chosen for so many, and serves any number
ROWS_PER_READING = 16  # reading a large matrix takes a core as long as multiplying so many rows by it


def layers_to_prepack(model: nn.Module, tokens: int) -> list[nn.Module]:
    """The layers of ``model`` whose weights are worth it for responses of ``tokens``; none where oneDNN or the memory is missing."""
    if not torch.backends.mkldnn.is_available():
        return []
    layers = [module for module in model.modules() if type(module) in (nn.Linear, Conv1D) and _is_worth_it(module.weight)]
    needed = sum(layer.weight.nbytes for layer in layers)
    return layers if prepacks_weights(needed, processor().total, tokens) else []


def least_rows(model: nn.Module, layers: Sequence[nn.Module]) -> int:
    """Rows that are worth a lane of their own, when these ``layers`` of ``model`` are laid out.

    Every lane reads all weights for each token. Where that is most of a step, lanes with few rows read as much as they multiply, and are
    slower than all threads together, each of which reads its part of every matrix.
    """
    large = sum(layer.weight.numel() for layer in layers)
    return ROWS_PER_READING if 2 * large > sum(weight.numel() for weight in model.parameters()) else LEAST_ROWS


def _is_worth_it(weight: Tensor) -> bool:
    return weight.numel() >= LEAST_NUMBERS and weight.dtype is torch.float32 and weight.device.type == "cpu"


@dataclass
class PrepackedWeight:
    """One layer's weights, laid out.

    Taken for every rollout and given back after it, so much memory would come back in pieces that an update cannot use: it is kept.

    Attributes:
        packed: opaque to everything but :func:`multiplying_by`.
        lasting: the weights are frozen, and no adapter is added to them while sampling.
        version: torch's count of the changes to them.
    """

    layer: nn.Module
    packed: Tensor
    lasting: bool
    version: int

    @torch.no_grad()
    def refresh(self) -> None:
        """Lay out the weights as they are now, unless they are the same."""
        version = self.layer.weight._version
        if not self.lasting or version != self.version:
            self.packed.copy_(_lay_out(self.layer))
            self.version = version


@torch.no_grad()
def prepack(layers: Sequence[nn.Module], places: Sequence[int]) -> list[PrepackedWeight]:
    """The layers' weights as they are now; ``places`` are their addresses while no adapter is added to them."""
    weights = [layer.weight for layer in layers]
    lasting = [not weight.requires_grad and weight.data_ptr() == place for weight, place in zip(weights, places, strict=True)]
    return [PrepackedWeight(layer, _lay_out(layer), stays, layer.weight._version) for layer, stays in zip(layers, lasting, strict=True)]


def _lay_out(layer: nn.Module) -> Tensor:
    matrix = layer.weight.t() if isinstance(layer, Conv1D) else layer.weight
    return torch.ops.mkldnn._reorder_linear_weight(matrix.contiguous(), ROWS)


@contextlib.contextmanager
def multiplying_by(layers: Sequence[nn.Module], packed: Sequence[Tensor]) -> Iterator[None]:
    """Inside, the layers multiply by these instead of their weights; to be recorded, not to be learned from."""
    for layer, weights in zip(layers, packed, strict=True):
        layer.forward = functools.partial(_multiply, layer, weights)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the class's own shows again


def _multiply(layer: nn.Module, packed: Tensor, x: Tensor) -> Tensor:
    return _product()(x, packed, layer.bias)


@functools.cache
def _product() -> Any:
    """The product as TorchScript, made when it is needed: a recording cannot hold the operator's list of no scalars otherwise."""

    def product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")

    return torch.jit.script(product)
