"""Long series made short for charts."""

from __future__ import annotations

import numpy as np

from rlhf_studio.units import DUST

MAX_POINTS = 1200
SIGNIFICANT_DIGITS = 6


def thin_rows(y: np.ndarray, limit: int = MAX_POINTS) -> np.ndarray:
    """Which rows to keep so that a line looks the same: the lowest and the highest of each bucket, and always the last.

    Args:
        y: shape (N,), may hold NaN; NaN points are left out once thinning sets in.
        limit: at least 4.

    Returns:
        Ascending indices, at most ``limit``; all of them when N <= limit.
    """
    if len(y) <= limit:
        return np.arange(len(y))
    body, buckets = len(y) - 1, (limit - 1) // 2
    width = -(-body // buckets)
    padded = np.full(width * buckets, np.nan)
    padded[:body] = y[:-1]
    table = padded.reshape(buckets, width)
    filled = ~np.isnan(table).all(axis=1)
    first = np.flatnonzero(filled) * width
    lowest, highest = first + np.nanargmin(table[filled], axis=1), first + np.nanargmax(table[filled], axis=1)
    return np.unique(np.concatenate([lowest, highest, [body]]))


def rounded(values: np.ndarray, digits: int = SIGNIFICANT_DIGITS) -> np.ndarray:
    """Float64 values as they are shown: with ``digits`` significant decimal digits, so that they are short when written out, and 0 below
    :data:`~rlhf_studio.units.DUST`. NaN and infinities stay."""
    numbers = np.asarray(values, np.float64)
    numbers = np.where(np.abs(numbers) < DUST, 0.0, numbers)
    sizes = np.where(np.isfinite(numbers) & (numbers != 0), np.abs(numbers), 1.0)
    decimals = digits - 1 - np.floor(np.log10(sizes))
    up, down = 10.0 ** np.maximum(decimals, 0), 10.0 ** np.maximum(-decimals, 0)  # whole numbers: 0.1 is not exact in binary
    result: np.ndarray = np.round(numbers * up / down) / up * down
    return result


def evenly(count: int, most: int) -> list[int]:
    """At most ``most`` of the indices below ``count``, ascending and evenly spread, the first and the last among them."""
    return sorted(set(np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()))
