"""Numbers that tell whether an update was healthy. All over real tokens only.

Source: Huang et al. 2024, "The N+ Implementation Details of RLHF with PPO", arXiv:2403.17031.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from .masking import masked_mean, masked_select, masked_var

ROUNDING = 1e-6  # relative error that float32 leaves in a mean: equal returns may seem to vary by this much


class UpdateSums(NamedTuple):
    """Sums over the response tokens of a minibatch or of a part of it; the means are properties.

    The sums of parts add up to those of the whole, field by field (:meth:`total`); means of unequal parts would not. A field is a scalar
    tensor, so that all can be fetched from a GPU at once, or a number.

    Attributes:
        policy_loss, value_loss, kl_loss: of the loss's terms, without their coefficients, each token with its weight in the loss
            (:mod:`averages`); 0 for a term that the loss does not have.
        clipped, value_clipped: tokens on which clipping decided the loss; ``value_clipped`` is 0 without a critic.
        entropy: in nats.
        squared_change: of (new_logprob − logprob)², in nats squared.
        ratio, squared_ratio: of the probability ratio ρ and of ρ².
        tokens: how many there are.
        weight: by what the terms of the loss are divided; the number of tokens, unless the loss is another average.
    """

    policy_loss: torch.Tensor | float
    value_loss: torch.Tensor | float
    clipped: torch.Tensor | float
    value_clipped: torch.Tensor | float
    entropy: torch.Tensor | float
    kl_loss: torch.Tensor | float
    squared_change: torch.Tensor | float
    ratio: torch.Tensor | float
    squared_ratio: torch.Tensor | float
    tokens: torch.Tensor | float
    weight: torch.Tensor | float

    @classmethod
    def total(cls, parts: Iterable[UpdateSums]) -> UpdateSums:
        """The sums of all parts together."""
        return cls(*(sum(column) for column in zip(*parts, strict=True)))

    @property
    def mean_policy_loss(self) -> torch.Tensor | float:
        """As the loss averages it: per token, unless it is another average."""
        return self.policy_loss / self.weight

    @property
    def mean_value_loss(self) -> torch.Tensor | float:
        """In squared score units; averaged as the policy's."""
        return self.value_loss / self.weight

    @property
    def mean_entropy(self) -> torch.Tensor | float:
        """In nats per token."""
        return self.entropy / self.tokens

    @property
    def approx_kl(self) -> torch.Tensor | float:
        """How far the update moved the policy: ½ · mean((new_logprob − logprob)²), in nats.

        This compares the policy with itself before the update, not with the reference. 0 before the first optimizer step.
        """
        return 0.5 * self.squared_change / self.tokens

    @property
    def clip_fraction(self) -> torch.Tensor | float:
        """Share of the tokens, 0 to 1, on which clipping decided the policy's loss."""
        return self.clipped / self.tokens

    @property
    def value_clip_fraction(self) -> torch.Tensor | float:
        """Share of the tokens, 0 to 1, on which clipping decided the critic's loss."""
        return self.value_clipped / self.tokens

    @property
    def mean_ratio(self) -> torch.Tensor | float:
        """Mean of the probability ratio; 1 before the first optimizer step."""
        return self.ratio / self.tokens

    @property
    def ratio_variance(self) -> torch.Tensor | float:
        """Variance (/ n) of the probability ratio: mean(ρ²) − mean(ρ)²; 0 before the first optimizer step."""
        difference = self.squared_ratio / self.tokens - self.mean_ratio**2
        return difference.clamp(min=0.0) if isinstance(difference, torch.Tensor) else max(difference, 0.0)  # rounding may fall below 0


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
