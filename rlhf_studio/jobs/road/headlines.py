"""A part's most important number, in words, for its card on the road."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.evaluation.answers import GOLD, JUDGE
from rlhf_studio.analysis.reward_model.accuracy import share_of
from rlhf_studio.config.metrics.stages import HEADLINES
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.jobs.road.state import Comparison, TrainingEnds
from rlhf_studio.language import N_, _, pgettext, together
from rlhf_studio.units import percent

_TITLES = {metric.name: metric.title for metric in METRICS}
_SHARES = {name for headline in HEADLINES.values() if headline.percent for name in headline.names}
_BY = {GOLD: N_("by the gold score"), JUDGE: N_("by the judge")}


def of_training(course: TrainingEnds | None) -> str:
    """``Held-out loss 3.50 → 1.50.``; empty for none."""
    if course is None:
        return ""
    last = written(course, course.last)
    first = last if course.first is None else written(course, course.first)
    steps = last if first == last else f"{first} → {last}"
    said = _("{sentence}.").format(sentence=f"{title_of(course)} {steps}{_of_how_many(course)}")
    return together(said, _within_chance(course))


def _within_chance(course: TrainingEnds) -> str:
    """Said of a held-out accuracy that rose, where its 95 % interval (Wilson) holds what it was before; else empty."""
    if course.metric not in _SHARES or not course.held_out or course.first is None or course.last <= course.first:
        return ""
    share = share_of("held out", np.full(course.held_out, course.last))
    if share.low is None or share.high is None or share.low > course.first:
        return ""
    words = _("This gain is within chance: 95 % interval {low} to {high}.")
    return words.format(low=percent(share.low), high=percent(share.high))


def of_comparison(comparison: Comparison | None, last: str = N_("The last policy"), first: str = N_("the first")) -> str:
    """How often the last policy's answers are better than the first one's, by the measure that decides; empty for none."""
    if comparison is None:
        return ""
    return _("{last} wins {rate} of comparisons with {first}{interval}, {by}.").format(
        last=_(last), rate=percent(comparison.rate), first=_(first), interval=interval(comparison), by=judged_by(comparison)
    )


def interval(comparison: Comparison) -> str:
    """`` (55 % to 78 %)``; empty where there is none."""
    low, high = comparison.low, comparison.high
    return "" if low is None or high is None else _(" ({low} to {high})").format(low=percent(low), high=percent(high))


def judged_by(comparison: Comparison) -> str:
    """``by the gold score, on 8 prompts``."""
    return _("{by}, on {prompts}").format(
        by=_(_BY.get(comparison.measure, N_("by the score"))), prompts=counted(comparison.prompts, "prompt")
    )


def title_of(course: TrainingEnds) -> str:
    """``Held-out accuracy``."""
    return _(_TITLES[course.metric])


def written(course: TrainingEnds, value: float) -> str:
    """A value of the course's metric, with a real minus sign."""
    return (percent(value, 1) if course.metric in _SHARES else f"{value:.2f}").replace("-", "\u2212")


def counted(number: int, noun: str) -> str:
    """``1 pair``, ``2,000 pairs``."""
    word = pgettext("count", noun)
    return f"{number:,} {word}" if number == 1 or word != noun else f"{number:,} {noun}s"


def _of_how_many(course: TrainingEnds) -> str:
    """How many pairs a held-out accuracy is a share of."""
    return (
        _(" of {pairs}").format(pairs=counted(course.held_out, "pair"))
        if course.metric.endswith("/eval_accuracy") and course.held_out
        else ""
    )
