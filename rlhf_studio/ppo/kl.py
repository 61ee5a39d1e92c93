"""How far the policy has moved from the reference, token by token.

With p the policy, q the reference and d = log p(token) − log q(token) at a token sampled from p:

    k1    d                       unbiased, may be negative, noisy
    k2    d² / 2                  never negative, biased, small variance; TRL calls it "mse"
    k3    exp(−d) − 1 + d         unbiased and never negative
    abs   |d|                     never negative, biased
    full  Σ_v p(v) log(p(v)/q(v)) the exact KL at this position; needs both whole distributions

Sources: J. Schulman, "Approximating KL divergence", http://joschu.net/blog/kl-approx.html (k1, k2, k3);
Ziegler et al. 2019, arXiv:1909.08593 (k1 as a per-token penalty).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .masking import masked_select

ESTIMATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "k1": lambda d: d,
    "k2": lambda d: d.square() / 2,
    "k3": lambda d: torch.expm1(-d) + d,  # expm1: exp(−d) − 1 without losing all digits when d is small
    "abs": lambda d: d.abs(),
}


def kl_per_token(logprobs: torch.Tensor, ref_logprobs: torch.Tensor, estimator: str) -> torch.Tensor:
    """Estimate of KL(policy ‖ reference) at each sampled token.

    Args:
        logprobs: (B, T) log-probabilities of the sampled tokens under the policy.
        ref_logprobs: (B, T) the same tokens under the reference.
        estimator: "k1", "k2", "k3" or "abs" (table at the head of this module).

    Returns:
        (B, T) in nats (k2: nats squared). Each slot depends on the same slot of the inputs only, so that bad numbers behind
        the mask stay there; hide them with a mask before they are used.

    Raises:
        ValueError: the estimator is unknown.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)} (for the exact sum use full_kl), got {estimator!r}")
    return ESTIMATORS[estimator](logprobs - ref_logprobs)


def full_kl(logprobs_all: torch.Tensor, ref_logprobs_all: torch.Tensor) -> torch.Tensor:
    """The exact KL(policy ‖ reference) of the next-token distribution at each position: Σ_v p(v) (log p(v) − log q(v)).

    Args:
        logprobs_all: (B, T, V) log-probabilities of the whole vocabulary under the policy; −inf = cannot be sampled.
        ref_logprobs_all: (B, T, V) the same under the reference.

    Returns:
        (B, T) in nats, never negative up to rounding; inf where the policy samples what the reference cannot.
    """
    possible = logprobs_all != -torch.inf  # a token with p = 0 adds 0, even where q = 0 too and log p − log q is NaN
    log_ratio = masked_select(logprobs_all - ref_logprobs_all, possible)
    return (logprobs_all.exp() * log_ratio).sum(dim=-1)
