"""How the numbers of a run began and ended."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlhf_studio.metrics.stages import SUMMARIES
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.rows import tenth

Ends = dict[str, tuple[float | None, float | None]]
FIRST_EVENTS = 50
"""The event ``start`` is among so many first ones of a run."""


def summary_ends(reader: RunReader, stage: str) -> Ends:
    """:func:`first_and_last` of the numbers by which a run of this stage is summed up."""
    return first_and_last(reader, stage, SUMMARIES[stage])


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
    found: Ends = {}
    for name in names:
        values = columns[name][np.isfinite(columns[name])]
        if not len(values):
            found[name] = (None, None)
            continue
        every_step = 2 * len(values) > len(steps)
        before = start.get(name)
        known = isinstance(before, int | float) and bool(np.isfinite(before))
        first = float(before) if known else float(values[0])  # type: ignore[arg-type]  # it is a number
        found[name] = (first, float(values[-tenth(len(values)) :].mean()) if every_step else float(values[-1]))
    return found
