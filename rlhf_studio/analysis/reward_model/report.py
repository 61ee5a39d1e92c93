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
from rlhf_studio.analysis.reward_model.consistency import Consistency, consistency
from rlhf_studio.analysis.reward_model.pairs import ScoredPairs, scored_pairs
from rlhf_studio.units import percent

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
    pairs: ScoredPairs, texts: Mapping[str, Any] | None = None, steadiness: Mapping[str, Any] | None = None, of: str = "held-out pair"
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
    of: str = "held-out pair",
) -> list[str]:
    """The findings as sentences; ``of`` is what people call a pair."""
    accuracy = headline.accuracy
    if accuracy.share is None or accuracy.low is None or accuracy.high is None:
        return [f"There is no {of} with a preferred response, so nothing can be said of this model."]
    words = [
        f"The preferred response scores higher in {_percent(accuracy.share)} of {accuracy.pairs:,} {of}s "
        f"(95 % interval {_percent(accuracy.low)} to {_percent(accuracy.high)}); guessing gives 50 %."
    ]
    if accuracy.low <= 0.5:
        words.append(f"That may still be chance: more {of}s, more training, or clearer preferences are needed.")
    return [*words, *_confidence(curve, accuracy.share), *_length(length), *_gold(gold), *_steadiness(steady)]


def _confidence(curve: Calibration, right: float) -> list[str]:
    over, temperature, error = curve.overconfidence, curve.temperature, curve.overconfidence_error
    if over is None:
        return []
    figures = f"it expects to be right in {_percent(right + over)} of the pairs, and is right in {_percent(right)}"
    if abs(over) < TOO_SURE:
        return [f"It is about as sure as it is right: {figures}."]
    if error is None or abs(over) <= SURE * error:
        return [f"It may be as sure as it is right, or not: {figures}, and so few pairs do not tell."]
    if over < 0:
        return [f"It is less sure than it might be: {figures}."]
    advice = "" if temperature is None else f" Its scores lie {temperature:.1f} times too far apart to be read as probabilities."
    return [f"It is too sure: {figures}.{advice}"]


def _length(length: LengthBias) -> list[str]:
    if length.longer_chosen is None or length.longer_scored is None or sum(part.pairs for part in length.bins) < FEW:
        return []
    people, model = length.longer_chosen, length.longer_scored
    figures = f"people preferred the longer response in {_percent(people)} of the pairs, the model in {_percent(model)}"
    beyond = length.error is not None and abs(model - people) > SURE * length.error
    if abs(model - people) > SWAYED and not beyond:
        return [f"Whether length sways it, so few pairs do not tell: {figures}."]
    if model - people > SWAYED:
        return [f"It favours length: {figures}. A policy trained on it will probably write longer and longer answers."]
    if people - model > SWAYED:
        return [f"It favours short answers: {figures}."]
    return [f"Length does not sway it more than people: {figures}."]


def _gold(gold: GoldAgreement | None) -> list[str]:
    if gold is None or gold.order.share is None:
        return []
    people = "" if gold.people.share is None else f"; the preferences that it learned from agree in {_percent(gold.people.share)}"
    return [f"It orders {_percent(gold.order.share)} of the pairs as the world's gold reward does{people}."]


def _steadiness(steady: Consistency | None) -> list[str]:
    if steady is None:
        return []
    words = [
        f"Changing only {part.name} moves the score by {part.spread:.2f} standard deviations on average"
        + ("" if part.flipped is None else f", and turns {_percent(part.flipped)} of the pairs round")
        + "."
        for part in steady.rewritten
        if part.spread is not None and part.spread > UNSTEADY
    ]
    if steady.rewritten and not words:
        words = ["Rewriting texts without changing their meaning hardly moves their scores."]
    if steady.padding is not None and steady.padding > ROUNDING:
        words.append(f"Padding changes scores by up to {steady.padding:.2g}: that is more than rounding, and a fault.")
    return words


def _percent(share: float) -> str:
    return percent(share, 0 if share >= 0.1 else 1)
