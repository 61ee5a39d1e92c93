"""Batches that the tests of the PPO maths share. B = 4 episodes, T = 6 tokens, V = 9 words, lengths 6, 3, 1 and 4."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

LENGTHS = torch.tensor([6, 3, 1, 4])


@pytest.fixture
def mask() -> torch.Tensor:
    return torch.arange(6) < LENGTHS[:, None]


@pytest.fixture
def noise() -> Callable[..., torch.Tensor]:
    """Normal random tensors of the asked shape from one seeded stream; double precision on request, for gradcheck."""
    generator = torch.Generator().manual_seed(20)

    def draw(*shape: int, dtype: torch.dtype = torch.float32, requires_grad: bool = False) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_(requires_grad)

    return draw
