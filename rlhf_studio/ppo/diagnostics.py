"""Numbers that tell whether an update was healthy. All over real tokens only, all scalar tensors.

Source: Huang et al. 2024, "The N+ Implementation Details of RLHF with PPO", arXiv:2403.17031.
"""

from __future__ import annotations

import torch

from .masking import masked_mean, masked_select, masked_var

ROUNDING = 1e-6  # relative error that float32 leaves in a mean: equal returns may seem to vary by this much


def approx_kl(new_logprobs: torch.Tensor, logprobs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """How far the update moved the policy: ½ · mean((new_logprob − logprob)²), in nats.

    This compares the policy with itself before the update, not with the reference. 0 before the first optimizer step.

    Args:
        new_logprobs: (B, T) under the policy being trained.
        logprobs: (B, T) under the policy that sampled.
        mask: (B, T) bool.

    Raises:
        ValueError: the mask is empty.
    """
    return masked_mean(masked_select(new_logprobs - logprobs, mask).square(), mask) / 2


def explained_variance(values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Share of the returns' variance that the critic predicts: 1 − mean((V − R)²) / mean((R − mean R)²).

    1 is a perfect critic; 0 is as good as always saying the mean return; negative is worse than that. NaN when all returns
    are equal, since there is nothing to explain.

    Args:
        values: (B, T) of the critic at sampling time.
        returns: (B, T).
        mask: (B, T) bool.

    Raises:
        ValueError: the mask is empty.
    """
    variance = masked_var(returns, mask, unbiased=False)
    unexplained = masked_mean(masked_select(values - returns, mask).square(), mask)
    noise = (ROUNDING * masked_mean(returns, mask)).square()
    return torch.where(variance > noise, 1 - unexplained / variance, torch.nan)


def clip_fraction(clipped: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Share of real tokens, 0 to 1, on which clipping decided the loss.

    Args:
        clipped: (B, T) bool, from ``policy_loss`` or ``value_loss``.
        mask: (B, T) bool.

    Raises:
        ValueError: the mask is empty.
    """
    return masked_mean(clipped.float(), mask)


def ratio_stats(ratio: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance (/ n) of the probability ratio; 1 and 0 before the first optimizer step.

    Args:
        ratio: (B, T) new probability / old probability.
        mask: (B, T) bool.

    Raises:
        ValueError: the mask is empty.
    """
    return masked_mean(ratio, mask), masked_var(ratio, mask, unbiased=False)
