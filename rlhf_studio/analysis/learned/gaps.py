"""The recorded responses about which two judges disagree most: the score, and the gold score. The parts of one reward are no judges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlhf_studio.analysis.records import Gap
from rlhf_studio.runs.records import RolloutRecord

MOST_GAPS = 3
FEWEST_RESPONSES = 16
LEAST_GAP = 1.5
"""In standard deviations; a smaller difference is ordinary."""


def widest_gaps(rollouts: Sequence[tuple[int, RolloutRecord]]) -> list[Gap]:
    """The widest gaps, widest first.

    Two judges count in different points. Each is therefore put on one scale first: less its mean, over its standard deviation. Both are
    taken over the recorded responses of the first step, before any update, and of the next ones where it has fewer than
    :data:`FEWEST_RESPONSES`: there the policy had not yet learned to please one of the two. For a judge that gives all of these the same
    value, the responses of all steps count. The gap of a response is the difference of the two values. A response with the same text as
    one before it in the list is left out.

    Args:
        rollouts: (step, response) of the kept steps, in order.
    """
    left, right = _known([record.score for _, record in rollouts]), _known([record.gold for _, record in rollouts])
    if left is None or right is None:
        return []
    at_first = _of_first_steps(rollouts)
    gaps = np.abs(_on_one_scale(left, at_first) - _on_one_scale(right, at_first))
    widest: list[Gap] = []
    texts: set[str] = set()
    for index in np.argsort(-np.nan_to_num(gaps, nan=-1.0), kind="stable"):
        step, record = rollouts[index]
        if not gaps[index] >= LEAST_GAP or len(widest) == MOST_GAPS:
            break
        if record.response not in texts:
            texts.add(record.response)
            widest.append(Gap(step, record.sample, "score", "gold", float(left[index]), float(right[index]), record.response))
    return widest


def judged(rollouts: Sequence[tuple[int, RolloutRecord]]) -> int:
    """How many of these responses have a value of both judges."""
    return sum(bool(np.isfinite([np.nan if value is None else value for value in (one.score, one.gold)]).all()) for _step, one in rollouts)


def _known(values: Sequence[float | None]) -> np.ndarray | None:
    """What a judge says of each response, NaN where it says nothing; None where it says too little, or always the same."""
    column = np.array([np.nan if value is None else value for value in values], np.float64)
    column = np.where(np.isfinite(column), column, np.nan)
    enough = (~np.isnan(column)).sum() >= FEWEST_RESPONSES
    return column if enough and np.nanmax(column) > np.nanmin(column) else None


def _of_first_steps(rollouts: Sequence[tuple[int, RolloutRecord]]) -> int:
    """How many responses at the front of the list are of the first step, or of as many steps as give enough of them."""
    enough = rollouts[:FEWEST_RESPONSES][-1][0]
    return sum(step <= enough for step, _ in rollouts)


def _on_one_scale(column: np.ndarray, first: int) -> np.ndarray:
    start = column[:first][~np.isnan(column[:first])]
    known = start if len(start) >= FEWEST_RESPONSES and np.ptp(start) > 0 else column[~np.isnan(column)]
    scaled: np.ndarray = (column - known.mean()) / known.std()
    return scaled
