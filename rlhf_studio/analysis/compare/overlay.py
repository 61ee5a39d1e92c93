"""One metric of several runs in one chart: a line for each run, a band for each group of seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlhf_studio.analysis.compare.records import Band, Line, Overlay
from rlhf_studio.analysis.compare.runs import check_number, group_places, numbers, plain_settings
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
    places = groups if groups is not None else group_places([plain_settings(r) for r in readers], [r.changes() for r in readers])
    series = []
    for reader in readers:
        steps, columns = reader.columns([metric])
        known = not np.isnan(columns[metric]).all()
        series.append((steps, columns[metric]) if known else (steps[:0], columns[metric][:0]))
    lines = [Line(run, *_thin(points, steps, values)) for run, (steps, values) in enumerate(series)]
    bands = [_band(group, [series[run] for run, place in enumerate(places) if place == group], points) for group in sorted(set(places))]
    return Overlay(metric, lines, [band for band in bands if band is not None])


def _thin(points: int, steps: np.ndarray, values: np.ndarray) -> tuple[list[int], list[float | None]]:
    rows = thin_rows(values, points)
    return steps[rows].tolist(), numbers(values[rows])


def _band(group: int, series: Sequence[tuple[np.ndarray, np.ndarray]], points: int) -> Band | None:
    """None for a single run, and for runs that have no step in common."""
    if len(series) < 2:
        return None
    shared = series[0][0]
    for steps, _ in series[1:]:
        shared = np.intersect1d(shared, steps, assume_unique=True)
    if not len(shared):
        return None
    values = np.stack([column[np.searchsorted(steps, shared)] for steps, column in series])  # (runs, steps); NaN in one: no mean there
    mean = values.mean(axis=0)
    rows = thin_rows(mean, points)
    return Band(group, shared[rows].tolist(), numbers(mean[rows]), numbers(values.min(axis=0)[rows]), numbers(values.max(axis=0)[rows]))
