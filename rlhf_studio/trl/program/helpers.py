"""Small functions that classic programs import from ``trl.core``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlhf_studio.engine.loop.build import seed_everything


class LengthSampler:
    """Draws a length from ``min_value`` (included) to ``max_value`` (not included), with numpy's global generator."""

    def __init__(self, min_value: int, max_value: int):
        if not min_value < max_value:
            raise ValueError(f"LengthSampler draws lengths from {min_value} up to, not including, {max_value}: there is none")
        self.values = list(range(min_value, max_value))

    def __call__(self) -> int:
        return int(np.random.choice(self.values))


def set_seed(seed: int) -> None:
    """Fix the random numbers of Python, numpy and torch."""
    seed_everything(seed)


@torch.no_grad()
def respond_to_batch(model: Any, queries: Tensor, txt_len: int = 20, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """``txt_len`` tokens for each of ``queries`` (B, L), which have one length: (B, txt_len). No token ends a response."""
    if queries.dim() != 2:
        raise ValueError(f"respond_to_batch takes queries of one length as a tensor (B, L), not {tuple(queries.shape)}")
    model = getattr(model, "pretrained_model", model)
    was_training = model.training
    model.eval()
    try:
        drawn = model.generate(
            input_ids=queries,
            attention_mask=torch.ones_like(queries),
            max_new_tokens=txt_len,
            min_new_tokens=txt_len,
            do_sample=True,
            top_k=top_k,
            top_p=top_p,
            eos_token_id=None,
            pad_token_id=0,
        )
    finally:
        model.train(was_training)
    responses: Tensor = drawn[:, queries.shape[1] :]
    return responses
