"""All measures of one measurement together, and what they mean in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rlhf_studio.analysis.reward_model.accuracy import (
    FEW,
    Fit,
    GoldAgreement,
    LengthBias,
    PairShare,
    by_group,
    fit,
    gold_agreement,
    length_bias,
)
from rlhf_studio.analysis.reward_model.calibration import Calibration, Histogram, calibration, histogram
from rlhf_studio.analysis.reward_model.consistency import Consistency, Rewritten, consistency
from rlhf_studio.analysis.reward_model.pairs import ScoredPairs, scored_pairs
from rlhf_studio.language import N_, _, together
from rlhf_studio.units import percent

HELD_OUT_PAIR = N_("held-out pair")
MOST_WRONG = 12
TOO_SURE = 0.03  # mean predicted less mean right, from which words say so, where it is beyond chance
SWAYED = 0.1  # how much more often the longer one wins with the model than with people, where it is beyond chance
SURE = 2.3  # standard errors; each of two sentences is wrong in at most 2.5 % of reports
UNSTEADY = 0.25  # standard deviations
ROUNDING = 1e-3


@dataclass(frozen=True)
class WrongPair:
    """A pair that the model gets wrong.

    Attributes:
        place: its index among the pairs, from 0.
        number: the row of the data.
        chosen, rejected: both scores.
        probability: what the model gives to what people chose.
        texts: prompt, chosen and rejected response, where they were recorded.
    """

    place: int
    number: int
    chosen: float
    rejected: float
    probability: float
    group: str
    texts: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class RewardReport:
    """What a measurement tells; ``words`` are sentences for people, the most important first."""

    pairs: int
    fit: Fit
    calibration: Calibration
    histogram: Histogram
    length: LengthBias
    groups: list[PairShare]
    gold: GoldAgreement | None
    consistency: Consistency | None
    wrong: list[WrongPair]
    words: list[str]

    def as_data(self) -> dict[str, Any]:
        """Plain data for a page or JSON."""
        return asdict(self)


def reward_report(record: Mapping[str, Any]) -> RewardReport:
    """All measures of a measurement's record: ``pairs`` (see :meth:`.pairs.ScoredPairs.record`) and, where they were looked at,
    ``consistency`` and the ``texts`` of the worst pairs. Raises ValueError when it is no such record.
    """
    if not isinstance(record.get("pairs"), Mapping):
        raise ValueError("this is no measurement of a reward model: it has no pairs")
    return report_on(scored_pairs(record["pairs"]), record.get("texts"), record.get("consistency", {}))


def report_on(
    pairs: ScoredPairs, texts: Mapping[str, Any] | None = None, steadiness: Mapping[str, Any] | None = None, of: str = HELD_OUT_PAIR
) -> RewardReport:
    """As :func:`reward_report`, of the pairs themselves; ``of`` is what people call one of them."""
    scores = np.concatenate([pairs.chosen, pairs.rejected])
    deviation = float(scores.std()) if len(scores) else 0.0
    measured = (fit(pairs), calibration(pairs), length_bias(pairs), gold_agreement(pairs))
    steady = consistency(steadiness or {}, deviation)
    return RewardReport(
        len(pairs),
        measured[0],
        measured[1],
        histogram(pairs),
        measured[2],
        by_group(pairs),
        measured[3],
        steady,
        most_wrong(pairs, texts),
        in_words(*measured, steady, of),
    )


def most_wrong(pairs: ScoredPairs, texts: Mapping[str, Any] | None = None, most: int = MOST_WRONG) -> list[WrongPair]:
    """The pairs whose preferred response the model finds least probable, worst first; none that it gets right, and no ties.

    ``texts`` maps the index of a pair, as text, to its prompt and both responses.
    """
    margins = np.where(pairs.ties, np.inf, pairs.margins)
    order = [index for index in np.argsort(margins, kind="stable")[:most].tolist() if margins[index] < 0]
    return [
        WrongPair(
            index,
            int(pairs.numbers[index]),
            float(pairs.chosen[index]),
            float(pairs.rejected[index]),
            float(1 / (1 + np.exp(-margins[index]))),
            pairs.groups[index],
            _texts(texts or {}, index),
        )
        for index in order
    ]


def _texts(texts: Mapping[str, Any], index: int) -> tuple[str, str, str] | None:
    if str(index) not in texts:
        return None
    prompt, chosen, rejected = texts[str(index)]
    return str(prompt), str(chosen), str(rejected)


def in_words(
    headline: Fit,
    curve: Calibration,
    length: LengthBias,
    gold: GoldAgreement | None,
    steady: Consistency | None,
    of: str = HELD_OUT_PAIR,
) -> list[str]:
    """The findings as sentences; ``of`` is what people call a pair."""
    accuracy = headline.accuracy
    if accuracy.share is None or accuracy.low is None or accuracy.high is None:
        return [_("There is no {pair} with a preferred response, so nothing can be said of this model.").format(pair=_(of))]
    first = _("The preferred response scores higher in {share} of {count:,} {pair}s (95 % interval {low} to {high}); guessing gives 50 %.")
    share, low, high = map(_percent, (accuracy.share, accuracy.low, accuracy.high))
    words = [first.format(share=share, count=accuracy.pairs, pair=_(of), low=low, high=high)]
    if accuracy.low <= 0.5:
        words.append(_("That may still be chance: more {pair}s, more training, or clearer preferences are needed.").format(pair=_(of)))
    return [*words, *_confidence(curve, accuracy.share), *_length(length), *_gold(gold), *_steadiness(steady)]


def _confidence(curve: Calibration, right: float) -> list[str]:
    over, temperature, error = curve.overconfidence, curve.temperature, curve.overconfidence_error
    if over is None:
        return []
    figures = _("it expects to be right in {expected} of the pairs, and is right in {right}")
    figures = figures.format(expected=_percent(right + over), right=_percent(right))
    if abs(over) < TOO_SURE:
        return [_("It is about as sure as it is right: {figures}.").format(figures=figures)]
    if error is None or abs(over) <= SURE * error:
        return [_("It may be as sure as it is right, or not: {figures}, and so few pairs do not tell.").format(figures=figures)]
    if over < 0:
        return [_("It is less sure than it might be: {figures}.").format(figures=figures)]
    sure, advice = (
        _("It is too sure: {figures}.").format(figures=figures),
        _("Its scores lie {times:.1f} times too far apart to be read as probabilities."),
    )
    return [sure if temperature is None else together(sure, advice.format(times=temperature))]


def _length(length: LengthBias) -> list[str]:
    if length.longer_chosen is None or length.longer_scored is None or sum(part.pairs for part in length.bins) < FEW:
        return []
    people, model = length.longer_chosen, length.longer_scored
    figures = _("people preferred the longer response in {people} of the pairs, the model in {model}")
    figures = figures.format(people=_percent(people), model=_percent(model))
    beyond = length.error is not None and abs(model - people) > SURE * length.error
    if abs(model - people) > SWAYED and not beyond:
        return [_("Whether length sways it, so few pairs do not tell: {figures}.").format(figures=figures)]
    if model - people > SWAYED:
        favours = _("It favours length: {figures}. A policy trained on it will probably write longer and longer answers.")
        return [favours.format(figures=figures)]
    if people - model > SWAYED:
        return [_("It favours short answers: {figures}.").format(figures=figures)]
    return [_("Length does not sway it more than people: {figures}.").format(figures=figures)]


def _gold(gold: GoldAgreement | None) -> list[str]:
    if gold is None or gold.order.share is None:
        return []
    share = _percent(gold.order.share)
    if gold.people.share is None:
        return [_("It orders {share} of the pairs as the world's gold reward does.").format(share=share)]
    both = _("It orders {share} of the pairs as the world's gold reward does; the preferences that it learned from agree in {people}.")
    return [both.format(share=share, people=_percent(gold.people.share))]


def _steadiness(steady: Consistency | None) -> list[str]:
    if steady is None:
        return []
    words = [_moved(part) for part in steady.rewritten if part.spread is not None and part.spread > UNSTEADY]
    if steady.rewritten and not words:
        words = [_("Rewriting texts without changing their meaning hardly moves their scores.")]
    if steady.padding is not None and steady.padding > ROUNDING:
        fault = _("Padding changes scores by up to {size:.2g}: that is more than rounding, and a fault.")
        words.append(fault.format(size=steady.padding))
    return words


def _moved(part: Rewritten) -> str:
    moved = _("Changing only {what} moves the score by {spread:.2f} standard deviations on average.")
    turned = _("Changing only {what} moves the score by {spread:.2f} standard deviations on average, and turns {share} of the pairs round.")
    facts = {"what": _(part.name), "spread": part.spread}
    return moved.format(**facts) if part.flipped is None else turned.format(**facts, share=_percent(part.flipped))


def _percent(share: float) -> str:
    return percent(share, 0 if share >= 0.1 else 1)
