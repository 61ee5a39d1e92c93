"""Sums, means and variances over the real tokens of a batch.

Responses have different lengths, so every (B, T) tensor has slots that belong to no token. The mask says which slots are
real, and everything here *selects* them instead of multiplying by 0 and 1. NaN times 0 is NaN, so one bad number behind the
mask would spoil a product, in the result and again in the gradient. Selecting spoils neither.
"""

from __future__ import annotations

import torch


def masked_select(x: torch.Tensor, mask: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
    """Keep ``x`` where the mask is True and put ``fill`` everywhere else.

    Call this *before* any function whose slope could be NaN or infinite (exp, division, logarithm). Doing it only afterwards
    repairs the value but not the gradient, since the backward pass would still multiply 0 by the bad slope.

    Args:
        x: any shape; what the mask hides may be NaN or infinite.
        mask: bool, a shape that broadcasts with ``x``; True = real.
        fill: the number for the hidden slots.
    """
    return torch.where(mask, x, fill)


def masked_sum(x: torch.Tensor, mask: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Sum of ``x`` over the real tokens: Σ w[b, t] x[b, t] where mask[b, t].

    Args:
        x: (B, T).
        mask: (B, T) bool. Its shape must equal that of ``x``: broadcasting here would count tokens twice.
        weights: (B, T) what each token counts, finite everywhere; None: each counts 1.

    Returns:
        A scalar tensor; 0 for an empty mask.

    Raises:
        ValueError: the shapes differ.
    """
    if x.shape != mask.shape:
        raise ValueError(f"x has shape {tuple(x.shape)} but the mask has shape {tuple(mask.shape)}; they must be equal")
    real = masked_select(x, mask)
    return (real if weights is None else real * weights).sum()


def masked_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of ``x`` over the real tokens of the whole batch: every token weighs the same, whatever its response's length.

    Args:
        x: (B, T).
        mask: (B, T) bool.

    Returns:
        A scalar tensor.

    Raises:
        ValueError: the mask is empty (a mean over nothing must not become a silent NaN), or the shapes differ.
    """
    count = mask.sum()
    if count == 0:
        raise ValueError("the mask is empty: a mean needs at least one real token")
    return masked_sum(x, mask) / count


def masked_var(x: torch.Tensor, mask: torch.Tensor, unbiased: bool = True) -> torch.Tensor:
    """Variance of ``x`` over the real tokens: Σ (x − mean)² / (n − 1), or / n when not ``unbiased``.

    Args:
        x: (B, T).
        mask: (B, T) bool with n real tokens.
        unbiased: True divides by n − 1 (sample variance, as TRL whitens), False by n.

    Returns:
        A scalar tensor, in the unit of ``x`` squared.

    Raises:
        ValueError: fewer than two real tokens when unbiased, none when not, or the shapes differ.
    """
    count = mask.sum()
    if unbiased and count < 2:
        raise ValueError(f"the mask has {int(count)} real tokens: a sample variance needs at least two")
    mean = masked_mean(x, mask)
    deviations = masked_select(x, mask) - mean
    return masked_sum(deviations.square(), mask) / (count - int(unbiased))
