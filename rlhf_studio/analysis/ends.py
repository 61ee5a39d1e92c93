"""How the numbers of a run began and ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rlhf_studio.config.metrics.stages import HEADLINES
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.rows import tenth

Ends = dict[str, tuple[float | None, float | None]]
FIRST_EVENTS = 50
"""The event ``start`` is among so many first ones of a run."""


SCORE, PART = "objective/scores", "reward/"


def parts_without_score(names: Iterable[str]) -> list[str]:
    """The parts of the reward among a run's metrics where no score sums them up, as of a log that does not give the weights; else none."""
    recorded = set(names)
    return [] if SCORE in recorded else sorted(name for name in recorded if name.startswith(PART))


@dataclass(frozen=True)
class HeadlineEnds:
    """How the number that says most about a run began and ended.

    Attributes:
        metric: which number it is.
        first, last: as :func:`first_and_last` takes them; ``first`` is None where nothing finite was recorded at the first step.
        falls: whether lower is better.
        percent: whether it is shown as a percentage.
    """

    metric: str
    first: float | None
    last: float
    falls: bool
    percent: bool


def ends_of(values: np.ndarray) -> tuple[float, float]:
    """(first, last) of a column with one value for each step, as :func:`first_and_last` takes them of PPO's numbers; NaN where not known.

    Where the first step has no value, the first one that there is.
    """
    finite, last = values[np.isfinite(values)], values[-tenth(len(values)) :]
    last = last[np.isfinite(last)]
    return (float(finite[0]) if len(finite) else np.nan), (float(last.mean()) if len(last) else np.nan)


def headline_ends(reader: RunReader, stage: str) -> HeadlineEnds | None:
    """The first number of :data:`~rlhf_studio.config.metrics.stages.HEADLINES` that the run has; None where it has none.

    Raises StoreError.
    """
    headline = HEADLINES.get(stage)
    if headline is None:
        return None
    for metric, (first, last) in first_and_last(reader, stage, headline.names).items():
        if last is not None:
            return HeadlineEnds(metric, first, last, headline.falls, headline.percent)
    return None


def first_and_last(reader: RunReader, stage: str, names: Sequence[str]) -> Ends:
    """For each metric its first value and its last one; None where nothing finite was recorded. Raises StoreError.

    PPO's numbers are compared as everywhere: the first step, and the mean of the last tenth. In the other stages some numbers are measured
    every so many steps only, and before training too (the event ``start``): of these the first measurement and the newest one are taken,
    while a number of each step ends with the mean of its last tenth.
    """
    if stage == "ppo":
        return reader.first_and_last(names)
    steps, columns = reader.columns(names)  # who wants both of one moment calls this inside a snapshot, which cannot be nested
    start = next((event.data for event in reader.events_since(0, FIRST_EVENTS) if event.kind == "start"), {})
    ends: Ends = {}
    for name in names:
        values = columns[name][np.isfinite(columns[name])]
        if not len(values):
            ends[name] = (None, None)
            continue
        every_step = 2 * len(values) > len(steps)
        before = start.get(name)
        known = isinstance(before, int | float) and bool(np.isfinite(before))
        first = float(before) if known else float(values[0])  # type: ignore[arg-type]  # it is a number
        ends[name] = (first, float(values[-tenth(len(values)) :].mean()) if every_step else float(values[-1]))
    return ends
