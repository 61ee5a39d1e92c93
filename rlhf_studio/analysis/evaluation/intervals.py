"""Means, ratios and shares with 95 % confidence intervals, where responses to one prompt are not independent.

The prompt is the unit: responses to one prompt share it, so they are more alike than responses to different prompts. With sums x_g and
n_g of the G prompts, the ratio is r = Σ x_g / Σ n_g, and its variance follows from the residuals of the prompts (Cochran 1977, *Sampling
Techniques*, section 6.4; Liang and Zeger 1986):

    var(r) = G / (G − 1) · Σ (x_g − r n_g)² / (Σ n_g)²

A mean is the ratio with n_g answers of prompt g. Its interval is r ± t · √var(r), with Student's t for G − 1 degrees of freedom.
A share (a win rate) gets Wilson's interval (1927) with the number of independent comparisons that would have this variance,
r (1 − r) / var(r), after Korn and Graubard (1998): plain t is too short near 0 and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

LEVEL = 0.95
"""How often an interval is to cover the truth."""


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % confidence interval.

    Attributes:
        value: the estimate; None where nothing is known.
        low, high: ends of the interval; None with fewer than two prompts.
        prompts: how many prompts it rests on.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    prompts: int = 0


NOTHING = Interval(None)


def by_prompt(numbers: np.ndarray, prompts: np.ndarray) -> np.ndarray:
    """The sum (G,) of the numbers (N,) of each prompt, in the order of the prompts' numbers (N,)."""
    return np.bincount(np.unique(prompts, return_inverse=True)[1], weights=numbers)


def mean(values: np.ndarray, prompts: np.ndarray) -> Interval:
    """The mean of values (N,) that belong to the prompts (N,). Values that are not finite are left out."""
    return ratio(values, np.ones(len(values)), prompts)


def ratio(numerators: np.ndarray, denominators: np.ndarray, prompts: np.ndarray) -> Interval:
    """Σ numerators / Σ denominators, shapes (N,); rows in which one of the two is not finite are left out."""
    known = np.isfinite(numerators) & np.isfinite(denominators)
    if not known.any():
        return NOTHING
    x, n = (by_prompt(np.asarray(part, float)[known], prompts[known]) for part in (numerators, denominators))
    if n.sum() <= 0:
        return NOTHING
    value, variance = _ratio(x, n)
    if variance is None:
        return Interval(value, prompts=len(x))
    half = student_t(len(x) - 1) * math.sqrt(variance)
    return Interval(value, value - half, value + half, len(x))


def share(points: np.ndarray, prompts: np.ndarray) -> Interval:
    """The mean of points (N,) between 0 and 1 (a win 1, a tie ½, a loss 0), with Wilson's interval by prompt."""
    if not len(points):
        return NOTHING
    x, n = by_prompt(np.asarray(points, float), prompts), by_prompt(np.ones(len(points)), prompts)
    value, variance = _ratio(x, n)
    if variance is None:
        return Interval(value, prompts=len(x))
    # Where all comparisons came out alike, their variance is 0 and says nothing: each prompt then counts as one comparison.
    independent = value * (1 - value) / variance if variance > 0 and 0 < value < 1 else float(len(x))
    t = student_t(len(x) - 1)
    scale = 1 + t * t / independent
    centre = (value + t * t / (2 * independent)) / scale
    half = t * math.sqrt(value * (1 - value) / independent + t * t / (4 * independent**2)) / scale
    return Interval(value, min(value, max(0.0, centre - half)), max(value, min(1.0, centre + half)), len(x))  # rounding at 0 and 1


def exponential(of: Interval) -> Interval:
    """exp of a number and of the ends of its interval: from a mean of negative log-probabilities to a perplexity."""
    value, low, high = (None if end is None else math.exp(min(end, 700.0)) for end in (of.value, of.low, of.high))
    return Interval(value, low, high, of.prompts)


def _ratio(x: np.ndarray, n: np.ndarray) -> tuple[float, float | None]:
    """Σ x / Σ n over the prompts (G,), and its variance; None for a single prompt."""
    value = float(x.sum() / n.sum())
    if len(x) < 2:
        return value, None
    return value, float(len(x) / (len(x) - 1) * ((x - value * n) ** 2).sum() / n.sum() ** 2)


def student_t(degrees: int, level: float = LEVEL) -> float:
    """The number that Student's t with so many degrees of freedom, 1 or more, exceeds in size with probability 1 − ``level``."""
    low, high = 0.0, 1.0
    while _two_sided(high, degrees) > 1 - level:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _two_sided(middle, degrees) > 1 - level else (low, middle)
    return (low + high) / 2


MANY = 2000
"""From so many degrees of freedom on the normal distribution, with one term of correction, is exact to six digits."""


def _two_sided(t: float, degrees: int) -> float:
    """P(|T| > t), by the finite series for whole degrees of freedom (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    if degrees > MANY:
        z = t * (1 - 1 / (4 * degrees)) / math.sqrt(1 + t * t / (2 * degrees))
        return 2 * (1 - NormalDist().cdf(z))
    angle = math.atan(t / math.sqrt(degrees))
    square = math.cos(angle) ** 2
    first = 1.0 if degrees % 2 == 0 else math.cos(angle)
    terms, term = 0.0, first
    for k in range(2 if degrees % 2 == 0 else 3, degrees + 1, 2):
        terms += term
        term *= square * (k - 1) / k
    inside = math.sin(angle) * terms if degrees % 2 == 0 else 2 / math.pi * (angle + math.sin(angle) * terms)
    return 1 - inside
