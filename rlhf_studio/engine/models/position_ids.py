"""Position ids: the numbers that a model gives to the tokens of a row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlhf_studio.engine.types import position_ids


@dataclass(frozen=True)
class PositionScheme:
    """How a model numbers the tokens of a row.

    Nearly all count from 0. RoBERTa and its kin count from behind the id of their padding token; such a token within a row gets its own id
    as its number and is not counted.

    Attributes:
        padding: that id; None counts from 0.
    """

    padding: int | None = None

    def __call__(self, ids: Tensor, real: Tensor) -> Tensor:
        """(B, L) numbers of the tokens ``ids`` (B, L) where ``real`` (B, L) is True; what lies under False is read by nothing."""
        if self.padding is None:
            return position_ids(real)
        counted = real.bool() & (ids != self.padding)
        return counted.long().cumsum(dim=1) * counted + self.padding

    def of_inputs(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """What a model is called with, its positions counted from 0 in each row, with the model's own numbers."""
        if self.padding is None:
            return inputs
        ids = inputs["input_ids"]
        return {**inputs, "position_ids": self(ids, torch.ones_like(ids))}


def position_scheme_of(model: nn.Module) -> PositionScheme:
    """How this model numbers tokens. Families that count from behind their padding id have a function for it in their embeddings."""
    for module in model.modules():
        if hasattr(module, "create_position_ids_from_input_ids") and isinstance(getattr(module, "padding_idx", None), int):
            return PositionScheme(module.padding_idx)
    return PositionScheme()
