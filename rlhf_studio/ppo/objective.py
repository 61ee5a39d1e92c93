"""PPO's whole objective on one minibatch: clipped policy loss, value loss, entropy bonus, KL term, and their statistics.

    loss = Σ policy_loss + c_v Σ value_loss − c_e Σ entropy + β Σ kl          (the last term only where the KL is in the loss)

A sum over tokens, for the reason that :mod:`losses` gives: the caller divides it by a number of the whole minibatch
(:func:`~rlhf_studio.ppo.averages.loss_divisor`), in PPO its token count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from .averages import loss_divisor, token_weights
from .diagnostics import UpdateSums
from .losses import ValueLoss, entropy_bonus, kl_loss, policy_loss, value_loss
from .masking import masked_select, masked_sum


@dataclass(frozen=True)
class ObjectiveSettings:
    """The numbers in the objective. Those of the critic (``cliprange_value``, ``vf_coef``, ``critic_only``) count only where there is one.

    Attributes:
        cliprange: ε of the policy's ratio.
        cliprange_high, dual_clip: as :func:`policy_loss` takes them.
        cliprange_value: ε_v of the critic in score units; None does not clip.
        vf_coef: c_v.
        entropy_coef: c_e; 0 for no bonus.
        kl_coef: β; counts only with ``kl_in_loss``.
        kl_in_loss: the estimator, "k2" or "k3", where the KL is a term of the loss; None where the rewards hold it.
        critic_only: only the value loss, for the first steps in which the critic warms up.
        ratio_level: "token", or "sequence" for one ratio of a response, as :func:`policy_loss` takes it.
        loss_average: over what the loss is a mean, "tokens", "responses" or "constant" (:mod:`averages`).
        longest: tokens of the longest response that may be written, which "constant" divides by.
    """

    cliprange: float = 0.2
    cliprange_high: float | None = None
    dual_clip: float | None = None
    cliprange_value: float | None = None
    vf_coef: float = 0.1
    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    kl_in_loss: str | None = None
    critic_only: bool = False
    ratio_level: str = "token"
    loss_average: str = "tokens"
    longest: int = 0

    def divisor(self, mask: torch.Tensor) -> int:
        """By what the loss, summed over the tokens of a whole minibatch with this ``mask`` (B, T), is divided."""
        return loss_divisor(mask, self.loss_average, self.longest)


class Minibatch(NamedTuple):
    """The rollout's numbers for a minibatch: constants, each (B, T).

    Attributes:
        mask: bool, True = response token.
        logprobs, ref_logprobs: of the sampled tokens under the policy that sampled them and under the reference.
        values: of the critic at sampling time; None without a critic.
        advantages: what the policy's loss uses, usually whitened.
        returns: the critic's targets; None without a critic.
    """

    mask: torch.Tensor
    logprobs: torch.Tensor
    ref_logprobs: torch.Tensor
    values: torch.Tensor | None
    advantages: torch.Tensor
    returns: torch.Tensor | None


class NewPass(NamedTuple):
    """The trained model's numbers for the same tokens, each (B, T); gradients flow into these. No ``values`` without a critic."""

    logprobs: torch.Tensor
    values: torch.Tensor | None
    entropy: torch.Tensor


class Objective(NamedTuple):
    """The loss summed over the tokens, a scalar that carries the gradient; and the statistics, scalar tensors."""

    loss_sum: torch.Tensor
    sums: UpdateSums


def ppo_objective(batch: Minibatch, new: NewPass, settings: ObjectiveSettings) -> Objective:
    """The objective of a minibatch, or of a part of one, and its statistics.

    Raises:
        ValueError: a setting is out of its range, shapes differ, or a critic's numbers are there only in part.
    """
    mask, weights = batch.mask, token_weights(batch.mask, settings.loss_average)
    limits, level = (settings.cliprange, settings.cliprange_high, settings.dual_clip), settings.ratio_level
    surrogate = policy_loss(new.logprobs, batch.logprobs, batch.advantages, mask, *limits, ratio_level=level, weights=weights)
    critic = _critic_loss(batch, new, settings, weights)
    nothing = torch.zeros((), device=mask.device)
    loss, kl = nothing if critic is None else settings.vf_coef * critic.loss_sum, nothing
    if not settings.critic_only:
        loss = loss + surrogate.loss_sum
        if settings.entropy_coef:
            loss = loss - settings.entropy_coef * entropy_bonus(new.entropy, mask, weights)
        if settings.kl_in_loss:
            kl = kl_loss(new.logprobs, batch.ref_logprobs, mask, settings.kl_in_loss, weights)
            loss = loss + settings.kl_coef * kl
    with torch.no_grad():
        change, ratio = masked_select(new.logprobs - batch.logprobs, mask), masked_select(surrogate.ratio, mask)
        sums = UpdateSums(
            policy_loss=surrogate.loss_sum.detach(),
            value_loss=nothing if critic is None else critic.loss_sum.detach(),
            clipped=(surrogate.clipped & mask).sum(),
            value_clipped=nothing if critic is None else (critic.clipped & mask).sum(),
            entropy=masked_sum(new.entropy, mask),
            kl_loss=kl.detach(),
            squared_change=change.square().sum(),
            ratio=ratio.sum(),
            squared_ratio=ratio.square().sum(),
            tokens=surrogate.tokens,
            weight=surrogate.tokens if settings.loss_average == "tokens" else torch.tensor(settings.divisor(mask), device=mask.device),
        )
    return Objective(loss, sums)


def _critic_loss(batch: Minibatch, new: NewPass, settings: ObjectiveSettings, weights: torch.Tensor | None) -> ValueLoss | None:
    """The critic's loss; None without a critic.

    Raises ValueError when only some of the critic's numbers are given, or when only the critic is to learn and there is none.
    """
    if batch.values is not None and batch.returns is not None and new.values is not None:
        return value_loss(new.values, batch.values, batch.returns, batch.mask, settings.cliprange_value, weights)
    if not (batch.values is None and batch.returns is None and new.values is None):
        raise ValueError("a critic needs its old values, its new values and the returns; without a critic all three are None")
    if settings.critic_only:
        raise ValueError("critic_only: there is no critic that could learn")
    return None
