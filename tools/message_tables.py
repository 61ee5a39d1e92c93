"""Sentences that stand in tables of the program, where no function marks them: units, the glossary, the charts, the doctor's checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from rlhf_studio.analysis.doctor import checks  # noqa: F401  (registers the checks)
from rlhf_studio.analysis.doctor.check import CHECKS
from rlhf_studio.analysis.records import VerdictKind
from rlhf_studio.config.glossary import GLOSSARY, IN_WORDS
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.ui.live.charts import CHARTS, QUANTITIES

UNITS = "ui/assets/shared/tips.js"  # scripts translate units, see unitWords


def tables() -> Iterator[tuple[str, str]]:
    """Each as its file, from ``rlhf_studio/`` on, and its text; twice where two tables have it."""
    for place, text in (*_units(), *_glossary(), *_charts(), *_checks()):
        if text:
            yield place, text


def _units() -> Iterator[tuple[str, str]]:
    for unit in ("token", "tokens", "word", "words"):
        yield "ui/assets/shared/tokens.js", unit
    for term in (*GLOSSARY.values(), *IN_WORDS.values()):
        yield UNITS, term.unit
    for kind in get_args(VerdictKind):
        yield "ui/assets/runs/columns.js", kind
    for chart in CHARTS:
        yield from ((UNITS, unit) for unit in (chart.left, chart.right, chart.shares))


def _glossary() -> Iterator[tuple[str, str]]:
    for term in (*GLOSSARY.values(), *IN_WORDS.values()):
        yield from (("config/glossary.py", text) for text in (term.title, term.meaning, term.good))


def _charts() -> Iterator[tuple[str, str]]:
    for chart in CHARTS:
        yield from (("ui/live/charts.py", text) for text in (chart.title, chart.alone))
    yield from (("ui/live/charts.py", quantity.label) for quantity in QUANTITIES)
    yield from (("config/metrics/table.py", metric.tile.label) for metric in METRICS if metric.tile)


def _checks() -> Iterator[tuple[str, str]]:
    for check in CHECKS.values():
        yield from (("analysis/doctor/check.py", text) for text in (check.title, check.rule, check.cause, check.advice))
