"""Token rows of unequal length as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pad_left(rows: list[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Rows of unequal length to (ids, mask), each (B, P), padded on the left."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows])
    return ids, mask


def pad_right(rows: Sequence[Sequence[int]], fill: int, device: torch.device | str) -> Tensor:
    """Rows of unequal length as an int64 tensor (B, L), filled on the right."""
    longest = max(len(row) for row in rows)
    return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows], dtype=torch.int64, device=device)
