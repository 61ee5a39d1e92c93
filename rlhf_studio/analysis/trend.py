"""Whether a series of one number per step rises or falls by more than chance, judged at every step from all steps up to it.

**Statistic.** The values y₁ … y_n are held against three rising curves x_i: log i (a rise that comes early), i (a steady one) and i³ (a
late one). For each curve t = Σ (x_i − x̄) y_i / √V, the estimate of a regression on that curve over its standard error. The largest of
the three says how surely the series rises, the smallest how surely it falls.

**Noise.** V is the largest of some variances of the numerator. One takes the standard errors of the steps, where they are known, and
steps as independent: new responses are drawn for each. The others are taken from the series alone, so that they also hold a policy that
wanders: noise in which a step is like the one before (AR(1) with correlation φ). With D_k, the variance of the differences of steps that
lie k apart, σ² = D₁ / (2 (1 − φ)) and φ = D₂ / D₁ − 1. Differences hardly know of a trend, and their variance not at all of a straight one.
φ is taken larger by its own standard error, 1 / √n, and at most 0.6: what is more alike than that from step to step is a trend. The same
of the means of 4 and of 16 steps, once there are enough of them, tells noise that is slow and lies under faster noise.

**Level.** From :data:`SURE` on it is called more than chance. That is so high because the series is looked at after every step: of series
without a trend it is reached at any step in at most 5 %, and in the end in at most 1 %; :data:`LIKELY` is reached in the end in at most
5 %. The figures are simulated in the tests, for 5 to 1,000 steps, correlations of 0 to 0.6, and a policy that wanders by half of a
step's noise with φ = 0.8. A slower wander cannot be told from a trend, and then the share is higher; docs/doctor.md has the figures.

Sources: the variance of a regression with AR(1) errors, as in Newey and West 1987, "A Simple, Positive Semi-Definite, Heteroskedasticity
and Autocorrelation Consistent Covariance Matrix", with the lags of AR(1) in place of a window; differences for the noise: von Neumann
1941, "Distribution of the Ratio of the Mean Square Successive Difference to the Variance".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

SURE, LIKELY = 4.0, 2.5
"""Standard errors: more than chance whenever it is looked at; and what chance reaches in the end in at most 1 of 20 series."""
FEWEST = 5
"""Fewer values do not tell their own noise."""
MOST_ALIKE = 0.6
LAGS = 20
"""0.6²⁰ is 4e-5: what lies further apart is independent."""
FEW = 6.0
"""Where no standard error is known, the noise of n steps is taken to be 1 + 6/n times what they say: few differences tell it badly."""
BLOCKS, FEWEST_BLOCKS = (4, 16), 10
"""Lengths of blocks whose means tell slow noise; fewer blocks do not."""
NO_NOISE = 1e-9
"""Of the values' own size: rounding, so that series that never change have no trend."""
CURVES: tuple[Callable[[np.ndarray], np.ndarray], ...] = (np.log, lambda steps: steps, lambda steps: (steps / len(steps)) ** 3)


def trend(values: np.ndarray, errors: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(how surely the series rises, how surely it falls) at each step, in standard errors, shapes (K,).

    A fall is negative. NaN before there are :data:`FEWEST` values. All of it in time proportional to K.

    Args:
        values: finite numbers, in order, shape (K,).
        errors: standard error of each, shape (K,); None or NaN where nothing but the series tells how far chance moves it.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        table = np.stack([fit.rise / fit.error for fit in fits(values, errors)])
    return table.max(axis=0), table.min(axis=0)


@dataclass(frozen=True)
class Fit:
    """A series held against one of the curves, at each step, shapes (K,). NaN before there are :data:`FEWEST` values.

    Attributes:
        rise: from the first value to the newest one, along the curve.
        error: its standard error.
        mean: of the values so far.
        noise: standard deviation of a value beside the curve, as if values were independent: larger where neighbours are alike.
    """

    rise: np.ndarray
    error: np.ndarray
    mean: np.ndarray
    noise: np.ndarray


def fits(values: np.ndarray, errors: np.ndarray | None = None) -> list[Fit]:
    """The regression on each of :data:`CURVES`, at every step from all values up to it; arguments as of :func:`trend`."""
    count = np.arange(1, len(values) + 1)
    squared = np.full(len(values), np.nan) if errors is None else np.square(errors, dtype=np.float64)
    few = np.where(np.isfinite(np.cumsum(squared)), 1.0, (1 + FEW / count) ** 2)
    variance, alike = _noise(values)
    slow, powers = _slow_noise(values), _powers(alike)
    regressions, means = [], np.cumsum(values) / count
    with np.errstate(invalid="ignore", divide="ignore"):
        for curve in CURVES:
            shape = _shape(curve, len(values))
            x, mean, plain = shape.x, shape.mean, shape.independent
            product = np.cumsum(x * values) - mean * np.cumsum(values)
            by_errors = np.cumsum(x**2 * squared) - 2 * mean * np.cumsum(x * squared) + mean**2 * np.cumsum(squared)
            by_series = np.fmax(variance * _spread(shape, powers), slow * plain)
            deviation = np.sqrt(np.fmax(few * by_series, by_errors))
            length = np.where(count >= FEWEST, (x - x[:1]) / plain, np.nan)
            regressions.append(
                Fit(product * length, deviation * length, means, np.where(count >= FEWEST, deviation / np.sqrt(plain), np.nan))
            )
    return regressions


def variance_of_mean(values: np.ndarray, taken: int) -> float:
    """The variance of the mean of the last ``taken`` values by the noise from step to step, as :func:`trend` knows it.

    Infinite, for not known, with fewer than :data:`FEWEST` values.
    """
    if len(values) < FEWEST:
        return float("inf")
    variance, alike = (float(part[-1]) for part in _noise(values))
    lags = np.arange(1, taken)
    shared = 1 + 2 * float(((1 - lags / taken) * alike**lags).sum())
    return max(variance * shared, float(_slow_noise(values)[-1])) / taken


def _noise(values: np.ndarray, cautious: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(variance of a single value, correlation of neighbours), from the differences so far, shapes (K,)."""
    count = np.arange(1, len(values) + 1)
    near, far = _differences(values, 1), _differences(values, 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = np.clip(np.nan_to_num(far / near - 1) + cautious / np.sqrt(count), 0.0, MOST_ALIKE)
    least = (NO_NOISE * np.maximum(np.maximum.accumulate(np.abs(values)), NO_NOISE)) ** 2
    return np.maximum(near / 2 / (1 - alike), least), alike


def _slow_noise(values: np.ndarray) -> np.ndarray:
    """The variance of a step's noise in the long run, (K,): the largest that the means of blocks of steps say; 0 before there are enough.

    The mean of b steps has the variance (long-run variance) / b, where blocks are long enough to be independent or AR(1) themselves. The
    blocks are divided into two halves, and the smaller figure counts: a rise that is over soon, or that comes late, makes only one half
    restless. The figure is computed again whenever there are a tenth more blocks; in between it stays.
    """
    variances = np.zeros(len(values))
    for length in BLOCKS:
        means = values[: len(values) // length * length].reshape(-1, length).mean(axis=1)
        count = FEWEST_BLOCKS
        while count <= len(means):
            halves = (_noise(half, cautious=False) for half in (means[: count // 2], means[count // 2 : count]))
            share = length * min(float(variance[-1] * (1 + alike[-1]) / (1 - alike[-1])) for variance, alike in halves)
            following = max(count + 1, int(1.1 * count))
            now = slice(count * length - 1, following * length - 1)
            variances[now] = np.maximum(variances[now], share)
            count = following
    return variances


def _differences(values: np.ndarray, lag: int) -> np.ndarray:
    """The variance so far of the differences of values that lie ``lag`` apart, shape (K,); NaN where there are fewer than two."""
    variances = np.full(len(values), np.nan)
    gaps = values[lag:] - values[:-lag]
    number = np.arange(1, len(gaps) + 1)
    spread = np.cumsum(gaps**2) - np.cumsum(gaps) ** 2 / number
    variances[lag:] = np.where(number > 1, np.maximum(spread, 0.0) / np.maximum(number - 1, 1), np.nan)
    return variances


def _powers(alike: np.ndarray) -> list[np.ndarray]:
    """2 φ^lag for each lag from 1 on, shapes (K,)."""
    return [2 * alike**lag for lag in range(1, min(LAGS, len(alike) - 1) + 1)]


def _spread(shape: Shape, powers: list[np.ndarray]) -> np.ndarray:
    """Σ_ij (x_i − x̄)(x_j − x̄) φ^|i−j| over the first n, at each n: the variance of Σ (x_i − x̄) y_i for noise of variance 1.

    Never less than that of independent noise: what is alike in so few steps may be chance.
    """
    total = shape.independent.copy()
    for lag, (power, products) in enumerate(zip(powers, shape.products, strict=True), 1):
        total[lag:] += power[lag:] * products
    spread: np.ndarray = np.maximum(total, shape.independent)
    return spread


@dataclass(frozen=True)
class Shape:
    """What a curve x is by itself, at each step, shapes (K,).

    Attributes:
        x, mean: its values, and their mean so far.
        independent: Σ_i (x_i − x̄)² so far.
        products: for each lag from 1 on Σ_i (x_i − x̄)(x_i−lag − x̄) so far, shape (K − lag,).
    """

    x: np.ndarray
    mean: np.ndarray
    independent: np.ndarray
    products: list[np.ndarray]


@lru_cache(maxsize=2 * len(CURVES))  # all metrics of a run are as long, and each is asked about several times
def _shape(curve: Callable[[np.ndarray], np.ndarray], length: int) -> Shape:
    count = np.arange(1, length + 1)
    x = curve(count.astype(np.float64))
    sums = np.cumsum(x)
    mean = sums / count
    products = []
    for lag in range(1, min(LAGS, length - 1) + 1):
        first, last = sums[:-lag], sums[lag:] - sums[lag - 1]
        products.append(np.cumsum(x[lag:] * x[:-lag]) - mean[lag:] * (first + last) + (count[lag:] - lag) * mean[lag:] ** 2)
    return Shape(x, mean, np.cumsum(x**2) - count * mean**2, products)
