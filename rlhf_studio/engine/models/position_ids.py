"""Position ids: which number a model expects for each token of a row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlhf_studio.engine.types import position_ids


@dataclass(frozen=True)
class PositionScheme:
    """How a model counts position ids.

    Nearly all models count from 0. RoBERTa and models derived from it count from the padding token's id plus 1; there, a padding token
    inside a text gets the padding id as its position id and is not counted.

    Attributes:
        padding: the padding token's id for such models; None counts from 0.
    """

    padding: int | None = None

    def __call__(self, ids: Tensor, real: Tensor) -> Tensor:
        """(B, L) position ids of the tokens ``ids`` (B, L). Where ``real`` (B, L) is False, at padding, the value does not matter."""
        if self.padding is None:
            return position_ids(real)
        counted = real.bool() & (ids != self.padding)
        return counted.long().cumsum(dim=1) * counted + self.padding

    def of_inputs(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The keyword arguments ``inputs`` of a model, whose position ids count from 0 in each row, with the model's own position ids."""
        if self.padding is None:
            return inputs
        ids = inputs["input_ids"]
        return {**inputs, "position_ids": self(ids, torch.ones_like(ids))}


def position_scheme_of(model: nn.Module) -> PositionScheme:
    """How this model counts position ids. Models that start after their padding id have a method for it in their embeddings module."""
    for module in model.modules():
        padding = getattr(module, "padding_idx", None)
        if hasattr(module, "create_position_ids_from_input_ids") and isinstance(padding, int):
            return PositionScheme(padding)
    return PositionScheme()
