"""A run's most telling number, in words, for its card on the road."""

from __future__ import annotations

from rlhf_studio.analysis.ends import headline_ends
from rlhf_studio.analysis.evaluation.in_words import in_words
from rlhf_studio.analysis.evaluation.report import report_of
from rlhf_studio.metrics.table import METRICS
from rlhf_studio.runs.reader import RunReader

_TITLES = {metric.name: metric.title for metric in METRICS}


def headline_of(reader: RunReader) -> str:
    """One short sentence from what the run has recorded; empty when it has nothing to tell. Raises StoreError."""
    stage = reader.status().stage
    if stage == "evaluation":
        return in_words(report_of(reader))
    found = headline_ends(reader, stage)
    if found is None:
        return ""
    last = _written(found.last, found.percent)
    first = last if found.first is None else _written(found.first, found.percent)
    return f"{_TITLES[found.metric]} {last}." if first == last else f"{_TITLES[found.metric]} {first} → {last}."


def _written(value: float, percent: bool) -> str:
    """With a real minus sign."""
    return (f"{value:.1%}" if percent else f"{value:.2f}").replace("-", "\u2212")
