"""What an evaluation comes to, in one sentence."""

from __future__ import annotations

from rlhf_studio.analysis.evaluation.answers import GOLD, JUDGE
from rlhf_studio.analysis.evaluation.report import Report
from rlhf_studio.language import N_, _
from rlhf_studio.units import percent

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
    sure = "" if rate.low is None or rate.high is None else _(" ({low} to {high})").format(low=percent(rate.low), high=percent(rate.high))
    by = _(_BY.get(report.decides, N_("by the score")))
    return _("The last policy wins {value} of comparisons with the first{sure}, {by}.").format(value=percent(rate.value), sure=sure, by=by)
