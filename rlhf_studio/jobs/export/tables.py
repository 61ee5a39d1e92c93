"""A run's metrics as CSV, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from typing import TextIO

from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.jobs.export.text import cell
from rlhf_studio.runs.reader import RunReader

AT_ONCE = 500


def write_csv(reader: RunReader, file: TextIO, on_progress: Callable[[float], None] = lambda fraction: None) -> int:
    """One row for each step, one column for each metric; empty where a step has no such metric, ``nan`` and ``inf`` as these words.

    Returns the number of rows. Raises StoreError and OSError.
    """
    last = max(1, reader.status().step)
    specials = {(step, name): value for step, name, value in reader.non_finite()}
    names = _names(reader)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["step", *map(cell, names)])
    step = count = 0
    while rows := reader.metrics_since(step, AT_ONCE):
        for step, metrics in rows:
            values = {name: specials.get((step, name), math.nan) if value is None else value for name, value in metrics.items()}
            writer.writerow([step, *(repr(values[name]) if name in values else "" for name in names)])
            count += 1
        on_progress(min(1.0, step / last))
    return count


def _names(reader: RunReader) -> list[str]:
    """All metrics of the run: first those that the program knows, in the order of its table."""
    order = {metric.name: index for index, metric in enumerate(METRICS)}
    names: set[str] = set()
    step = 0
    while rows := reader.metrics_since(step, AT_ONCE):
        names.update(*(metrics for _, metrics in rows))
        step = rows[-1][0]
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))
