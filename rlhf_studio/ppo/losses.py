"""The quantities that PPO minimises, as sums over tokens.

Every function returns a *sum*, not a mean. A minibatch may be computed in micro-batches and on several processes with
different token counts, and a mean of means would weigh their tokens differently. The caller divides each sum by a number of the
whole minibatch, its token count in PPO, so that the split changes nothing. ``weights`` (B, T) say what each token counts in the sum; None:
each counts 1 (:mod:`averages`).

``logprobs``, ``advantages``, ``values`` and ``returns`` come from the rollout and are constants here; gradients are meant to
flow into the ``new_`` tensors.

Sources: Schulman et al. 2017, arXiv:1707.06347 (clipping); Huang et al. 2024, arXiv:2403.17031 (value clipping, the ½);
Yu et al. 2025, arXiv:2503.14476 (a larger upper clip range: DAPO's clip-higher); Ye et al. 2020, arXiv:1912.09729 (dual clip);
Zheng et al. 2025, arXiv:2507.18071 (GSPO: one ratio for a response).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .kl import kl_per_token
from .masking import masked_select, masked_sum


class PolicyLoss(NamedTuple):
    """What ``policy_loss`` gives.

    Attributes:
        loss_sum: scalar, summed over the real tokens; carries the gradient.
        clipped: (B, T) bool, True where clipping decided the loss, so that the token pushes the policy no further.
        ratio: (B, T) new probability / old probability, of the token or of its response; 1 behind the mask. No gradient.
        tokens: scalar int64, the number of real tokens.
    """

    loss_sum: torch.Tensor
    clipped: torch.Tensor
    ratio: torch.Tensor
    tokens: torch.Tensor


class ValueLoss(NamedTuple):
    """What ``value_loss`` gives.

    Attributes:
        loss_sum: scalar, half the squared errors summed over the real tokens; carries the gradient.
        clipped: (B, T) bool, True where clipping decided the loss, so that the token pulls the critic no further.
        tokens: scalar int64, the number of real tokens.
    """

    loss_sum: torch.Tensor
    clipped: torch.Tensor
    tokens: torch.Tensor


def policy_loss(
    new_logprobs: torch.Tensor,
    logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    cliprange: float,
    cliprange_high: float | None = None,
    dual_clip: float | None = None,
    *,
    ratio_level: str = "token",
    weights: torch.Tensor | None = None,
) -> PolicyLoss:
    """PPO's clipped objective, to be minimised.

        ρ = exp(new_logprob − logprob)        loss = Σ max(−A ρ, −A clip(ρ, 1 − ε, 1 + ε_high))

    Once a token's probability has moved by ε in the direction its advantage asks for, the clipped branch wins and its gradient
    is 0. A move in the wrong direction is never clipped, unless ``dual_clip`` c bounds it: for A < 0 the loss stays below −A c.

    At the level of the sequence (GSPO) all tokens of response i share one ratio, the geometric mean of theirs:

        ρ_i = exp(1 / |o_i| · Σ_t (new_logprob[i, t] − logprob[i, t]))

    so that a response is clipped as a whole. It moves far less than the ratio of a token: its ε are of the order 3e-4.

    Args:
        new_logprobs: (B, T) under the policy being trained.
        logprobs: (B, T) under the policy that sampled.
        advantages: (B, T), usually whitened.
        mask: (B, T) bool, True = response token.
        cliprange: ε in (0, 1).
        cliprange_high: ε_high > 0; None takes ε.
        dual_clip: c > 1; None for none.
        ratio_level: "token" or "sequence".
        weights: (B, T) what each token counts; None: 1.

    Returns:
        ``PolicyLoss``; divide ``loss_sum`` by the minibatch's token count.

    Raises:
        ValueError: a clip setting is out of its range, or there is no such level.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7; GSPO: Zheng et al. 2025, arXiv:2507.18071, eq. 5 to 7.
    """
    high = cliprange if cliprange_high is None else cliprange_high
    _check_clipping(cliprange, high, dual_clip, ratio_level)
    if ratio_level == "sequence":  # each token has moved as its response has on average
        new_logprobs, logprobs = _mean_change(new_logprobs, logprobs, mask), torch.zeros_like(logprobs)

    advantages = masked_select(advantages, mask)
    ratio = masked_select(new_logprobs - logprobs, mask).exp()
    plain = -advantages * ratio
    limited = -advantages * ratio.clamp(1 - cliprange, 1 + high)
    clipped = limited > plain
    loss = torch.maximum(plain, limited)
    if dual_clip is not None:
        ceiling = masked_select(-advantages * dual_clip, advantages < 0, fill=torch.inf)
        clipped = clipped | (loss > ceiling)
        loss = torch.minimum(loss, ceiling)
    return PolicyLoss(masked_sum(loss, mask, weights), clipped, ratio.detach(), mask.sum())


def _check_clipping(cliprange: float, high: float, dual_clip: float | None, ratio_level: str) -> None:
    if not 0 < cliprange < 1:
        raise ValueError(f"cliprange must lie between 0 and 1, got {cliprange}")
    if not high > 0:
        raise ValueError(f"cliprange_high must be above 0, or None to take cliprange, got {high}")
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip must be above 1, or None for none, got {dual_clip}")
    if ratio_level not in ("token", "sequence"):
        raise ValueError(f"ratio_level must be token or sequence, got {ratio_level!r}")


def _mean_change(new_logprobs: torch.Tensor, logprobs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B, T) the mean change of a response's log-probabilities, at each of its tokens: GSPO's log ρ_i."""
    change = masked_select(new_logprobs - logprobs, mask)
    lengths = mask.sum(dim=1, keepdim=True).clamp(min=1)
    return masked_select(change.sum(dim=1, keepdim=True) / lengths, mask)


def value_loss(
    new_values: torch.Tensor,
    values: torch.Tensor,
    returns: torch.Tensor,
    mask: torch.Tensor,
    cliprange_value: float | None,
    weights: torch.Tensor | None = None,
) -> ValueLoss:
    """Half the squared error of the critic, whose values may move at most ε_v away from those at sampling time.

        loss = ½ Σ max((V − R)², (clip(V, V_old − ε_v, V_old + ε_v) − R)²)

    Args:
        new_values: (B, T) of the critic being trained.
        values: (B, T) of the critic at sampling time.
        returns: (B, T) targets R.
        mask: (B, T) bool, True = response token.
        cliprange_value: ε_v > 0 in score units; None does not clip.
        weights: (B, T) what each token counts; None: 1.

    Returns:
        ``ValueLoss``; divide ``loss_sum`` by the minibatch's token count.

    Raises:
        ValueError: the clip range is not above 0.
    """
    if cliprange_value is not None and not cliprange_value > 0:
        raise ValueError(f"cliprange_value must be above 0, or None for no clipping, got {cliprange_value}")
    new_values, values, returns = (masked_select(x, mask) for x in (new_values, values, returns))
    loss = (new_values - returns).square()
    clipped = torch.zeros_like(mask)
    if cliprange_value is not None:
        limited = (new_values.clamp(values - cliprange_value, values + cliprange_value) - returns).square()
        clipped = limited > loss
        loss = torch.maximum(loss, limited)
    return ValueLoss(masked_sum(loss, mask, weights) / 2, clipped, mask.sum())


def kl_loss(
    new_logprobs: torch.Tensor, ref_logprobs: torch.Tensor, mask: torch.Tensor, estimator: str, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Sum of a KL estimate over the real tokens, for runs that put β·KL in the loss instead of the reward.

    Only estimators whose *gradient* pulls the policy back to the reference make sense here. That of k1 is 0 on average: it
    says nothing about the reference at all.

    Args:
        new_logprobs: (B, T) under the policy being trained.
        ref_logprobs: (B, T) under the reference.
        mask: (B, T) bool, True = response token.
        estimator: "k2" (its gradient at the sampling policy is that of the exact KL on average) or "k3".
        weights: (B, T) what each token counts; None: 1.

    Returns:
        A scalar in nats (k2: nats squared); multiply by β and divide by the minibatch's token count.

    Raises:
        ValueError: the estimator is neither k2 nor k3.
    """
    if estimator not in ("k2", "k3"):
        raise ValueError(f"estimator must be k2 or k3 in the loss, got {estimator!r}")
    kl = kl_per_token(masked_select(new_logprobs, mask), masked_select(ref_logprobs, mask), estimator)
    return masked_sum(kl, mask, weights)


def entropy_bonus(entropy: torch.Tensor, mask: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Sum of the policy's entropy over the real tokens, in nats; *subtract* it from the loss to keep the policy curious.

    Args:
        entropy: (B, T) in nats, of the policy being trained.
        mask: (B, T) bool, True = response token.
        weights: (B, T) what each token counts; None: 1.

    Returns:
        A scalar; multiply by the entropy coefficient and divide by the minibatch's token count.
    """
    return masked_sum(entropy, mask, weights)
