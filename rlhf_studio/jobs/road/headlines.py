"""A run's most important number, in words, for its card on the road."""

from __future__ import annotations

from rlhf_studio.analysis.ends import FIRST_EVENTS, headline_ends
from rlhf_studio.analysis.evaluation.in_words import in_words
from rlhf_studio.analysis.evaluation.report import report_of
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.units import percent

_TITLES = {metric.name: metric.title for metric in METRICS}


def headline_of(reader: RunReader) -> str:
    """One short sentence from what the run has recorded; empty when it has nothing to tell. Raises StoreError."""
    stage = reader.status().stage
    if stage == "evaluation":
        report = report_of(reader)
        sentence = in_words(report)
        return f"{sentence.removesuffix('.')}, on {_counted(report.prompts, 'prompt')}." if sentence else ""
    ends = headline_ends(reader, stage)
    if ends is None:
        return ""
    last = _written(ends.last, ends.percent)
    first = last if ends.first is None else _written(ends.first, ends.percent)
    course = last if first == last else f"{first} → {last}"
    return f"{_TITLES[ends.metric]} {course}{_of_how_many(reader, ends.metric)}."


def _of_how_many(reader: RunReader, metric: str) -> str:
    """How many pairs a held-out accuracy is a share of, from the run's event ``examples``; empty for other numbers."""
    if not metric.endswith("/eval_accuracy"):
        return ""
    data = next((event.data for event in reader.events_since(0, FIRST_EVENTS) if event.kind == "examples"), {})
    pairs = data.get("held_out")
    return f" of {_counted(pairs, 'pair')}" if type(pairs) is int and pairs > 0 else ""


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _written(value: float, is_share: bool) -> str:
    """With a real minus sign."""
    return (percent(value, 1) if is_share else f"{value:.2f}").replace("-", "\u2212")
