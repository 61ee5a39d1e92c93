"""What an evaluation comes to, in one sentence."""

from __future__ import annotations

from rlhf_studio.analysis.evaluation.answers import GOLD, JUDGE
from rlhf_studio.analysis.evaluation.frontier import titled
from rlhf_studio.analysis.evaluation.intervals import Interval
from rlhf_studio.analysis.evaluation.report import Report
from rlhf_studio.language import N_, _
from rlhf_studio.units import percent

MOST_NAMED = 3
_BY = {GOLD: N_("by the gold score"), JUDGE: N_("by the judge")}


def in_words(report: Report) -> str:
    """How often the last policy's answers are better than the first one's, by the measure that decides; empty with one policy.

    The win rate counts a draw as half, as :func:`~rlhf_studio.analysis.evaluation.compare.win_rate` does.
    """
    others = [policy for policy in report.policies if policy.name != report.first]
    if not others:
        return ""
    last = others[-1]
    rate = last.win_rates[report.decides].rate if report.decides in last.win_rates else None
    if rate is None or rate.value is None:
        return ""
    by = _(_BY.get(report.decides, N_("by the score")))
    words = _("The last policy wins {value} of comparisons with the first{sure}, {by}.")
    return words.format(value=percent(rate.value), sure=_sure(rate), by=by)


def each_in_words(report: Report) -> str:
    """How often each policy's answers are better than the first one's, by its name, the last few of many; empty with one policy."""
    rates = [(row.name, won.rate) for row in report.policies if (won := row.win_rates.get(report.decides)) and won.rate.value is not None]
    run = report.first.rpartition("@")[0]
    parts = [
        _("{policy}: {value}{sure}").format(policy=_beside(name, run), value=percent(rate.value), sure=_sure(rate))
        for name, rate in rates[-MOST_NAMED:]
        if rate.value is not None
    ]
    by = _(_BY.get(report.decides, N_("by the score")))
    words = _("Win rate against {first}, {by} – {list}.")
    return words.format(first=titled(report.first), by=by, list=_("; ").join(parts)) if parts else ""


def _beside(name: str, run: str) -> str:
    """A policy's name in a sentence that has named its run already."""
    of, _at, step = name.rpartition("@")
    return _("step {step}").format(step=step) if run and of == run and step.isdecimal() else titled(name)


def _sure(rate: Interval) -> str:
    if rate.low is None or rate.high is None:
        return ""
    return _(" ({low} to {high})").format(low=percent(rate.low), high=percent(rate.high))
