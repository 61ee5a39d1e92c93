"""Best-of-n without bias, least squares for the paper's forms, peaks, and bootstrap intervals."""

from __future__ import annotations

import numpy as np


def best_of(proxy: np.ndarray, gold: np.ndarray, n: int) -> np.ndarray:
    """(prompts,) the expected gold of the answer with the highest proxy among n, from N answers to each prompt: the mean over all ways to
    take n of the N (Nakano et al. 2021, arXiv:2112.09332, appendix I). Equal proxies count in the order in which they were drawn.

    Args:
        proxy, gold: (prompts, N).
    """
    count = proxy.shape[1]
    order = np.argsort(-proxy, axis=1, kind="stable")
    weights, weight = [], n / count  # that the best of all is among the n
    for rank in range(count - n + 1):
        weights.append(weight)
        weight *= (count - rank - n) / (count - rank - 1) if rank < count - 1 else 0.0
    return np.asarray(np.take_along_axis(gold, order, axis=1)[:, : len(weights)] @ np.array(weights))


def kl_of_best(n: np.ndarray) -> np.ndarray:
    """KL of the best of n to the policy, in nats, where no two answers are equal: log n − (n − 1) / n."""
    return np.asarray(np.log(n) - (n - 1) / n)


SHAPES = (lambda d: d**2, lambda d: d * np.log(np.maximum(d, 1e-12)))
"""What β is the weight of, in the order of :data:`~benchmarks.overoptimisation.plan.FORMS`."""


def fit(form: int, d: np.ndarray, gain: np.ndarray) -> tuple[float, float, float]:
    """α, β and the root of the mean squared error, by least squares."""
    columns = np.stack([d, -SHAPES[form](d)], axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(columns, gain, rcond=None)
    return float(alpha), float(beta), float(np.sqrt(np.mean((columns @ [alpha, beta] - gain) ** 2)))


def value(form: int, alpha: float, beta: float, d: np.ndarray) -> np.ndarray:
    """The fitted gain at d."""
    return np.asarray(alpha * d - beta * SHAPES[form](d))


def top(gold: np.ndarray, kl: np.ndarray, smooth: int) -> tuple[float, float]:
    """The highest mean gold of ``smooth`` steps in a row, and their d: the root of their mean KL."""
    golds, kls = (np.convolve(series, np.full(smooth, 1 / smooth), "valid") for series in (gold, kl))
    return float(golds.max()), float(np.sqrt(kls[golds.argmax()]))


def first_reaching(gain: float, gains: np.ndarray, kl: np.ndarray) -> float:
    """The KL at which a curve that begins at 0 first has this gain, on straight lines between its points; NaN where it never has."""
    above = np.flatnonzero(gains >= gain)
    if not len(above) or above[0] == 0:
        return float("nan")
    before, at = above[0] - 1, above[0]
    share = (gain - gains[before]) / (gains[at] - gains[before])
    return float(kl[before] + share * (kl[at] - kl[before]))


def slope(values: np.ndarray, of: np.ndarray, beside: np.ndarray) -> float:
    """How much ``values`` grow with ``of``, with ``beside`` held fixed: least squares with a constant."""
    columns = np.stack([np.ones(len(values)), of, beside], axis=1)
    return float(np.linalg.lstsq(columns, values, rcond=None)[0][1])
