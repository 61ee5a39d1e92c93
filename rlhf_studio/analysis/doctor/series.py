"""Small functions on series of one number per step. All are causal: the value at a step depends on that step and earlier ones only."""

from __future__ import annotations

import numpy as np

NOTE, WARNING, ALARM = 1, 2, 3


def streak(condition: np.ndarray, length: int) -> np.ndarray:
    """True where ``condition`` (S,) held at this step and at the ``length`` - 1 before it."""
    held = np.zeros(len(condition), dtype=bool)
    if 0 < length <= len(condition):
        count = np.concatenate([[0], np.cumsum(condition)])
        held[length - 1 :] = count[length:] - count[:-length] == length
    return held


def window_mean(values: np.ndarray, length: int) -> np.ndarray:
    """Mean of this step and the ``length`` - 1 before it; NaN where there are not so many yet, or one of them is NaN."""
    means = np.full(len(values), np.nan)
    if len(values) >= length:
        means[length - 1 :] = np.lib.stride_tricks.sliding_window_view(values, length).mean(axis=1)
    return means


def window_median(values: np.ndarray, length: int) -> np.ndarray:
    """Median of the ``length`` steps before this one, this one left out; NaN where there are not so many."""
    medians = np.full(len(values), np.nan)
    if len(values) > length:
        medians[length:] = np.median(np.lib.stride_tricks.sliding_window_view(values[:-1], length), axis=1)
    return medians


def at_start(values: np.ndarray, count: int = 1) -> float:
    """Mean of the first ``count`` values that are numbers; NaN without any."""
    finite = values[np.isfinite(values)][:count]
    return float(finite.mean()) if len(finite) else float("nan")


def filled(values: np.ndarray) -> np.ndarray:
    """NaN replaced by the last number before it; what comes before the first number stays NaN. Shape as given, one dimension."""
    finite = np.isfinite(values)
    return np.asarray(np.append(np.nan, values[finite])[np.cumsum(finite)])


def levels(note: np.ndarray | None = None, warning: np.ndarray | None = None, alarm: np.ndarray | None = None) -> np.ndarray:
    """The gravest level whose condition holds at each step: 0 for none, then :data:`NOTE`, :data:`WARNING`, :data:`ALARM`."""
    pairs = [(level, mask) for level, mask in ((NOTE, note), (WARNING, warning), (ALARM, alarm)) if mask is not None]
    highest = np.zeros(len(pairs[0][1]), dtype=np.int8)
    for level, mask in pairs:
        highest[mask] = level
    return highest


def carried(steps: np.ndarray, looked: dict[int, int]) -> np.ndarray:
    """Levels of the steps in ``looked``, spread over all steps, (S,). Each holds until the next step in ``looked``."""
    at_steps, level = np.zeros(len(steps), dtype=np.int8), 0
    for index, step in enumerate(steps.tolist()):
        level = looked.get(step, level)
        at_steps[index] = level
    return at_steps
