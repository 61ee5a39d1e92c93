"""From one score per response to one reward per token, and the scaling of scores over a run."""

from __future__ import annotations

import math

import torch

from .advantages import scale_to_unit_variance
from .masking import masked_select


def shape_rewards(
    kl: torch.Tensor,
    scores: torch.Tensor,
    mask: torch.Tensor,
    kl_coef: float,
    *,
    unit_variance: bool = False,
    early: torch.Tensor | None = None,
) -> torch.Tensor:
    """Per-token reward: every token pays for its KL, the last one also receives the response's score.

        r[b, t] = −β · kl[b, t] + scores[b] · 1[t is the last response token of b]

    Where steps inside the response have scores of their own, e[b, t] (``early``), a token receives its own, and the last one what is left
    of the response's score, scores[b] − Σ e[b, t].

    Args:
        kl: (B, T) per-token KL in nats.
        scores: (B,) one score per response.
        mask: (B, T) bool, True = response token.
        kl_coef: β, score units per nat; 0 where the loss, not the reward, holds the policy to the reference.
        early: (B, T) what tokens before the last receive; 0 elsewhere.
        unit_variance: scale the rewards to variance 1 around their mean (:func:`scale_to_unit_variance`; TRL's ``whiten_rewards``).

    Returns:
        (B, T) rewards in score units; 0 behind the mask.

    Raises:
        ValueError: a response has no token that could receive its score.

    Source: Ziegler et al. 2019, arXiv:1909.08593; Stiennon et al. 2020, arXiv:2009.01325.
    """
    has_tokens = mask.any(dim=1)
    if not has_tokens.all():
        raise ValueError(f"episode {int((~has_tokens).nonzero()[0])} has no response token to carry its score")
    positions = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, positions, -1).amax(dim=1, keepdim=True)  # (B, 1)
    earned = masked_select(scores.unsqueeze(1), positions == last)
    if early is not None:
        early = masked_select(early, mask)
        earned = earned + early - masked_select(early.sum(dim=1, keepdim=True), positions == last)
    rewards = masked_select(-kl_coef * kl, mask) + earned
    return scale_to_unit_variance(rewards, mask) if unit_variance else rewards


class RunningMoments:
    """Mean and standard deviation of all scores seen so far, without keeping the scores.

    Each batch is merged exactly (Welford 1962; Chan, Golub and LeVeque 1983), in double precision: the result equals the
    mean and the sample standard deviation (n − 1) of all scores together, whatever the batch sizes.

    Attributes:
        count: scores seen so far.
        mean: their mean; 0 before the first.
        squared_deviations: Σ (score − mean)² over all scores seen.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squared_deviations = 0.0

    @property
    def std(self) -> float:
        """Sample standard deviation (n − 1); 1, which scales nothing, until two scores were seen."""
        return math.sqrt(self.squared_deviations / (self.count - 1)) if self.count > 1 else 1.0

    def update(self, scores: torch.Tensor) -> tuple[float, float]:
        """Take in a batch of scores.

        Args:
            scores: (B,) at least one, all finite.

        Returns:
            (mean, sample standard deviation) of this batch alone; the deviation of a single score is given as 0.

        Raises:
            ValueError: the batch is empty or a score is not finite (it would spoil the moments for the rest of the run).
        """
        batch = scores.detach().cpu().double()
        count = batch.numel()
        if count == 0:
            raise ValueError("scores is empty: the running moments need at least one score")
        if not batch.isfinite().all():
            raise ValueError(f"the score of episode {int((~batch.isfinite()).nonzero()[0])} is not finite")
        mean = batch.mean().item()
        squared_deviations = (batch - mean).square().sum().item()

        total = self.count + count
        shift = mean - self.mean
        self.squared_deviations += squared_deviations + shift**2 * self.count * count / total
        self.mean += shift * count / total
        self.count = total
        return mean, math.sqrt(squared_deviations / max(count - 1, 1))

    def state_dict(self) -> dict[str, float]:
        """Everything that a checkpoint needs, as plain floats."""
        return {"count": float(self.count), "mean": self.mean, "squared_deviations": self.squared_deviations}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from what ``state_dict`` gave."""
        self.count = int(state["count"])
        self.mean = float(state["mean"])
        self.squared_deviations = float(state["squared_deviations"])


def scale_scores(scores: torch.Tensor, moments: RunningMoments, mode: str, clip: float | None = None) -> torch.Tensor:
    """Bring scores to a common scale with the run's moments, then limit them.

        none: score      scale: score / std      normalise: (score − mean) / std      then clip to [−clip, clip]

    Args:
        scores: (B,).
        moments: of all scores so far; update it with these scores first.
        mode: "none", "scale" or "normalise".
        clip: limit after scaling; None or 0 does not limit.

    Returns:
        (B,) scores. When all scores seen are equal there is no scale to divide by, and the division is left out.

    Raises:
        ValueError: the mode is unknown or the clip is negative.
    """
    if mode not in ("none", "scale", "normalise"):
        raise ValueError(f"mode must be none, scale or normalise, got {mode!r}")
    if clip is not None and not clip >= 0:
        raise ValueError(f"clip must be above 0, or None or 0 for no limit, got {clip}")
    if mode == "normalise":
        scores = scores - moments.mean
    if mode != "none" and moments.std > 0:
        scores = scores / moments.std
    return scores.clamp(-clip, clip) if clip else scores
