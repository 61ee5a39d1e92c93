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
    written = "{:.1%}" if found.percent else "{:.2f}"
    last = written.format(found.last)
    first = last if found.first is None else written.format(found.first)
    return f"{_TITLES[found.metric]} {last}." if first == last else f"{_TITLES[found.metric]} {first} → {last}."
