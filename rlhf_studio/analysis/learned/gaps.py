"""The recorded responses about which two judges disagree most: score and gold, or two components of the reward."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from rlhf_studio.analysis.records import Gap
from rlhf_studio.runs.records import RolloutRecord
from rlhf_studio.runs.rows import tenth

MOST_GAPS = 6
MOST_OF_A_PAIR = 3
FEWEST_RESPONSES = 16
LEAST_GAP = 1.5
"""In standard deviations; a smaller difference is ordinary."""
MOST_COMPONENTS = 6


def widest_gaps(rollouts: Sequence[tuple[int, RolloutRecord]]) -> list[Gap]:
    """The widest gaps, widest first.

    Two judges count in different points. Each is therefore put on one scale first: less its mean, over its standard deviation. Both are
    taken over the recorded responses of the first steps (at least :data:`FEWEST_RESPONSES`), where the policy had not yet learned to please
    one of the two. For a judge that gives all of these the same value, the responses of all steps count. The gap of a response is the
    difference of the two values. A response with the same text as one before it in the list is left out.

    Args:
        rollouts: (step, response) of the kept steps, in order.
    """
    judges = _judges(rollouts)
    parts = [name for name in judges if name not in ("score", "gold")]
    pairs = [("score", "gold")] if "score" in judges and "gold" in judges else []
    sized_gaps: list[tuple[float, Gap]] = []
    for first, second in [*pairs, *combinations(parts[:MOST_COMPONENTS], 2)]:
        sized_gaps += _widest(rollouts, first, judges[first], second, judges[second], _of_first_steps(rollouts))
    return [gap for _, gap in sorted(sized_gaps, key=lambda sized: -sized[0])][:MOST_GAPS]


def _judges(rollouts: Sequence[tuple[int, RolloutRecord]]) -> dict[str, np.ndarray]:
    """What each judge says of each response, NaN where it says nothing; only judges that say different things."""
    names = {name: None for _, record in rollouts for name in record.parts}
    columns = {name: [record.parts.get(name) for _, record in rollouts] for name in names if name not in ("score", "gold")}
    columns |= {"score": [record.score for _, record in rollouts], "gold": [record.gold for _, record in rollouts]}
    values = {name: np.array([np.nan if value is None else value for value in column], np.float64) for name, column in columns.items()}
    known = {name: np.where(np.isfinite(column), column, np.nan) for name, column in values.items()}
    enough = {name: column for name, column in known.items() if (~np.isnan(column)).sum() >= FEWEST_RESPONSES}
    return {name: column for name, column in enough.items() if np.nanmax(column) > np.nanmin(column)}


def _of_first_steps(rollouts: Sequence[tuple[int, RolloutRecord]]) -> int:
    """How many responses at the front of the list are of the first tenth of the steps, or of as many as give enough of them."""
    steps = sorted({step for step, _ in rollouts})
    last = steps[tenth(len(steps)) - 1]
    enough = rollouts[: 2 * FEWEST_RESPONSES][-1][0]
    return sum(step <= max(last, enough) for step, _ in rollouts)


def _on_one_scale(column: np.ndarray, first: int) -> np.ndarray:
    start = column[:first][~np.isnan(column[:first])]
    known = start if len(start) >= FEWEST_RESPONSES and np.ptp(start) > 0 else column[~np.isnan(column)]
    scaled: np.ndarray = (column - known.mean()) / known.std()
    return scaled


def _widest(
    rollouts: Sequence[tuple[int, RolloutRecord]], first: str, left: np.ndarray, second: str, right: np.ndarray, at_first: int
) -> list[tuple[float, Gap]]:
    gaps = np.abs(_on_one_scale(left, at_first) - _on_one_scale(right, at_first))
    widest: list[tuple[float, Gap]] = []
    texts: set[str] = set()
    for index in np.argsort(-np.nan_to_num(gaps, nan=-1.0), kind="stable"):
        step, record = rollouts[index]
        if not gaps[index] >= LEAST_GAP or len(widest) == MOST_OF_A_PAIR:
            break
        if record.response not in texts:
            texts.add(record.response)
            values = float(left[index]), float(right[index])
            widest.append((float(gaps[index]), Gap(step, record.sample, first, second, *values, record.response)))
    return widest
