"""One metric of several runs in one chart: a line for each run, a band for each group of seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlhf_studio.analysis.compare.records import Band, MetricLine, Overlay
from rlhf_studio.analysis.compare.runs import check_number, group_numbers, numbers, plain_settings, what_changed
from rlhf_studio.analysis.series import MAX_POINTS, thin_rows
from rlhf_studio.runs.reader import RunReader


def overlay(readers: Sequence[RunReader], metric: str, *, groups: Sequence[int] | None = None, points: int = MAX_POINTS) -> Overlay:
    """A metric of all runs, in the order given; a run that has not recorded it has a line without points.

    Args:
        groups: for each run its group, as :attr:`ComparedRun.group` says; found out anew when it is not given, which takes longer.
        points: at most so many of each line, at least 4.

    Raises:
        ValueError: no run, too many runs, or the same run twice.
        StoreError: one of them cannot be read.
    """
    check_number(readers)
    group_of_run = groups
    if group_of_run is None:
        group_of_run = group_numbers([plain_settings(reader) for reader in readers], [what_changed(reader) for reader in readers])
    series = []
    for reader in readers:
        steps, columns = reader.columns([metric])
        known = not np.isnan(columns[metric]).all()
        series.append((steps, columns[metric]) if known else (steps[:0], columns[metric][:0]))
    lines = [MetricLine(run, *_thin(points, steps, values)) for run, (steps, values) in enumerate(series)]
    bands = [
        _band(group, [own for own, number in zip(series, group_of_run, strict=True) if number == group], points)
        for group in sorted(set(group_of_run))
    ]
    return Overlay(metric, lines, [band for band in bands if band is not None])


def _thin(points: int, steps: np.ndarray, values: np.ndarray) -> tuple[list[int], list[float | None]]:
    rows = thin_rows(values, points)
    return steps[rows].tolist(), numbers(values[rows])


def _band(group: int, series: Sequence[tuple[np.ndarray, np.ndarray]], points: int) -> Band | None:
    """At each step over the runs that have a value there, where at least two have one: a run that ended early is in it up to its end.

    None where no step has two runs.
    """
    steps = np.unique(np.concatenate([own for own, _ in series]))
    table = np.full((len(series), len(steps)), np.nan)  # (runs, steps)
    for row, (own, values) in zip(table, series, strict=True):
        row[np.searchsorted(steps, own)] = values
    known = np.isfinite(table)
    count = known.sum(axis=0)
    if not (count >= 2).any():
        return None
    steps, table, known, count = (array[..., : int(np.flatnonzero(count >= 2)[-1]) + 1] for array in (steps, table, known, count))
    mean, low, high = (
        np.where(count >= 2, values, np.nan)
        for values in (
            np.where(known, table, 0.0).sum(axis=0) / np.maximum(count, 1),
            np.where(known, table, np.inf).min(axis=0),
            np.where(known, table, -np.inf).max(axis=0),
        )
    )
    rows = thin_rows(mean, points)
    return Band(group, steps[rows].tolist(), numbers(mean[rows]), numbers(low[rows]), numbers(high[rows]))
