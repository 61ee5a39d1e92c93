"""How a metric began and how it ended: its mean over the first and over the last tenth of a run's steps."""

from __future__ import annotations

import numpy as np


def tenth(steps: int) -> int:
    """How many steps a tenth of ``steps`` is: rounded down, and at least one."""
    return max(1, steps // 10)


def first_and_last(values: np.ndarray) -> tuple[float | None, float | None]:
    """Means over the first and the last tenth of the steps; None where that tenth has no finite value.

    Args:
        values: one value per step, shape (steps,); NaN or infinite where the step has none that counts.
    """
    size = tenth(len(values))
    return _mean(values[:size]), _mean(values[-size:])


def _mean(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None
