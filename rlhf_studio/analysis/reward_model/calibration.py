"""Does the model know how sure it may be? Predicted probabilities beside what people chose, and the histograms of the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.reward_model.accuracy import log_losses, rightness
from rlhf_studio.analysis.reward_model.pairs import Numbers, ScoredPairs

BINS = 10
HISTOGRAM_BINS = 30
HOTTEST, COLDEST = 100.0, 0.01


@dataclass(frozen=True)
class CalibrationBin:
    """Pairs whose more probable response had a probability from ``low`` to ``high``.

    Attributes:
        pairs: how many.
        predicted: the mean of these probabilities; None without pairs.
        right: share of them in which people preferred that response too; None without pairs.
    """

    low: float
    high: float
    pairs: int
    predicted: float | None
    right: float | None


@dataclass(frozen=True)
class Calibration:
    """The calibration curve.

    Attributes:
        bins: from 0.5 to 1. The model's probability of the response it prefers is max(p, 1 − p) with p = P(chosen), so the curve of p
            itself, from 0 to 1, is this one and its mirror image.
        error: expected calibration error, Σ share of pairs · |predicted − right| over the bins.
        overconfidence: mean predicted less mean right, over all pairs; above 0 the model is too sure.
        overconfidence_error: its standard error, were the model right as often as it expects; None without pairs.
        temperature: what scores would have to be divided by so that the log loss is least; above 1 they lie too far apart.
        least_log_loss: the log loss at that temperature.
    """

    bins: list[CalibrationBin]
    error: float | None
    overconfidence: float | None
    overconfidence_error: float | None
    temperature: float | None
    least_log_loss: float | None


@dataclass(frozen=True)
class Histogram:
    """Scores of both sides over the same bins: ``edges`` (n + 1), counts (n) each."""

    edges: list[float]
    chosen: list[int]
    rejected: list[int]


def calibration(pairs: ScoredPairs) -> Calibration:
    """The calibration curve of the pairs without ties. Source: Guo et al. 2017, arXiv:1706.04599 (error, temperature)."""
    margins = pairs.without_ties().margins
    edges = np.linspace(0.5, 1.0, BINS + 1)
    if not len(margins):
        return Calibration(
            [CalibrationBin(float(low), float(high), 0, None, None) for low, high in zip(edges, edges[1:], strict=False)], *[None] * 5
        )
    sure, right = 1 / (1 + np.exp(-np.abs(margins))), rightness(margins)
    bin_of_pair = np.minimum(((sure - 0.5) * 2 * BINS).astype(int), BINS - 1)
    bins = []
    for number in range(BINS):
        of_bin = bin_of_pair == number
        means = (float(sure[of_bin].mean()), float(right[of_bin].mean())) if of_bin.any() else (None, None)
        bins.append(CalibrationBin(float(edges[number]), float(edges[number + 1]), int(of_bin.sum()), *means))
    error = sum(part.pairs * abs(part.predicted - part.right) for part in bins if part.predicted is not None and part.right is not None)
    temperature = best_temperature(margins)
    least = None if temperature is None else float(log_losses(margins / temperature).mean())
    chance = float(np.sqrt((sure * (1 - sure)).sum())) / len(margins)  # of so many independent pairs
    return Calibration(bins, error / len(margins), float(sure.mean() - right.mean()), chance, temperature, least)


def best_temperature(margins: Numbers) -> float | None:
    """The temperature t that makes the mean of −log sigmoid(margin / t) least.

    The loss is convex in 1 / t, so its slope has one zero, which is found by halving. None where the slope has no zero between
    1/100 and 100: all pairs right, all wrong, or no margin at all.
    """

    def slope(inverse: float) -> float:
        return float(-(margins / (1 + np.exp(np.clip(inverse * margins, -700, 700)))).mean())

    low, high = 1 / HOTTEST, 1 / COLDEST
    if not (slope(low) < 0 < slope(high)):
        return None
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 1 / low


def histogram(pairs: ScoredPairs) -> Histogram:
    """How the scores of chosen and rejected responses are spread; ties are among them."""
    scores = np.concatenate([pairs.chosen, pairs.rejected])
    if not len(scores):
        return Histogram([], [], [])
    low, high = float(scores.min()), float(scores.max())
    edges = np.linspace(low, high if high > low else low + 1.0, HISTOGRAM_BINS + 1)
    counts = [np.histogram(side, edges)[0].tolist() for side in (pairs.chosen, pairs.rejected)]
    return Histogram(edges.tolist(), counts[0], counts[1])
