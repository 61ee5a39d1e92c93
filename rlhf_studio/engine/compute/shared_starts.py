"""Texts of a packed row that begin alike: what they share goes through the model once, and only attention sees it once per text.

Two responses to one prompt are such texts. Every part of a decoder except attention works on each token by itself, and a token's
numbers depend on the tokens before it alone, so those of the shared start are the same for both.

Shapes: N tokens in the packed row, X tokens of all texts together, each with its whole start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class SharedStarts:
    """Where the tokens of the texts are in a packed row in which shared starts stand once.

    Attributes:
        spread: (X,) for each token of each text, its position in the packed row.
        own: (N,) for each token of the packed row, the position of its first copy among the X.
        copies, originals: (X - N,) the positions of the other copies among the X, and the positions in the row of what they copy.
            No position stands twice in ``originals``: no start is shared by more than two texts.
    """

    spread: Tensor
    own: Tensor
    copies: Tensor
    originals: Tensor

    def to_texts(self, x: Tensor) -> Tensor:
        """(N, ...) of the row to (X, ...) of the texts."""
        texts: Tensor = _ToTexts.apply(x, self)
        return texts

    def to_row(self, x: Tensor) -> Tensor:
        """(X, ...) of the texts to (N, ...) of the row: of what is shared, the first copy."""
        row: Tensor = _ToRow.apply(x, self)
        return row


def common_start(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginning."""
    shorter = min(len(first), len(second))
    return next((index for index in range(shorter) if first[index] != second[index]), shorter)


class _ToTexts(torch.autograd.Function):
    """Each position of the row has one copy or two, so the gradient is a gather and one addition; that of an index is added row by row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, starts: SharedStarts) -> Tensor:
        ctx.starts = starts
        return x.index_select(0, starts.spread)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        starts: SharedStarts = ctx.starts
        result = gradient.index_select(0, starts.own)
        both = result.index_select(0, starts.originals).add_(gradient.index_select(0, starts.copies))
        return result.index_copy_(0, starts.originals, both), None


class _ToRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, starts: SharedStarts) -> Tensor:
        ctx.starts = starts
        return x.index_select(0, starts.own)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        starts: SharedStarts = ctx.starts
        result = gradient.new_zeros((len(starts.spread), *gradient.shape[1:]))
        return result.index_copy_(0, starts.own, gradient), None
