"""How often the preferred response scores higher: over all pairs, by the difference of their lengths, by group, and against gold."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.reward_model.pairs import Numbers, ScoredPairs
from rlhf_studio.language import N_, _

Z95 = 1.959963984540054  # of a normal distribution: 95 % lie within so many standard deviations
MOST_GROUPS = 20
FEW = 10
"""Pairs below which a share is called uncertain."""
LENGTH_BINS = (N_("much shorter"), N_("shorter"), N_("equally long"), N_("longer"), N_("much longer"))


@dataclass(frozen=True)
class PairShare:
    """How many of ``pairs`` were right; an equal score counts one half.

    Attributes:
        share: right / pairs; None without any pair.
        low, high: a 95 % interval (Wilson); None without any pair.
    """

    name: str
    pairs: int
    right: float
    share: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Fit:
    """The headline numbers.

    Attributes:
        accuracy: share of the pairs that the model orders as people did.
        log_loss: mean of −log P(chosen), nats per pair; ln 2 = 0.693 is what guessing gives.
        margin: mean score of the chosen less that of the rejected, as scores stand now.
        chosen_mean, rejected_mean: means of the scores.
        ties: pairs that people found equally good, which count in none of the above.
    """

    accuracy: PairShare
    log_loss: float | None
    margin: float | None
    chosen_mean: float | None
    rejected_mean: float | None
    ties: int


@dataclass(frozen=True)
class LengthBias:
    """Is the model swayed by length?

    Attributes:
        bins: accuracy by how much longer the chosen response is; the middle of the differences parts "longer" from "much longer".
        middle: that difference, in tokens.
        longer_chosen: share of the pairs of unequal length in which people preferred the longer one.
        longer_scored: share of the same pairs in which the model scores the longer one higher.
        error: standard error of the difference of these two, over the same pairs; None for fewer than two pairs.
        correlation: Pearson's, of score and length over all responses; None where one of them does not vary.
    """

    bins: list[PairShare]
    middle: float
    longer_chosen: float | None
    longer_scored: float | None
    error: float | None
    correlation: float | None


@dataclass(frozen=True)
class GoldAgreement:
    """The model against the world's gold reward.

    Attributes:
        order: share of the pairs whose responses it orders as gold does; pairs with equal gold are left out.
        people: share of the same pairs in which the preferred one has the higher gold: the best that can be learned from them by rote.
        correlation: Spearman's rank correlation of score and gold over all responses.
    """

    order: PairShare
    people: PairShare
    correlation: float | None


def share_of(name: str, right: Numbers) -> PairShare:
    """The share with its interval; ``right`` (N,) is 1, 0 or ½ for each pair.

    Source of the interval: Wilson 1927. It stays inside [0, 1] and holds for few pairs too.
    """
    count, total = len(right), float(right.sum())
    if not count:
        return PairShare(name, 0, 0.0, None, None, None)
    share, square = total / count, Z95**2
    centre = (share + square / (2 * count)) / (1 + square / count)
    half = Z95 / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return PairShare(name, count, total, share, max(0.0, centre - half), min(1.0, centre + half))


def rightness(margins: Numbers) -> Numbers:
    """1 where the margin is above 0, ½ where it is 0, else 0."""
    return np.where(margins > 0, 1.0, np.where(margins == 0, 0.5, 0.0))


def log_losses(margins: Numbers) -> Numbers:
    """−log sigmoid(margin) of each pair, without overflow."""
    return np.logaddexp(0.0, -margins)


def fit(pairs: ScoredPairs) -> Fit:
    """Accuracy, log loss, and the means of the scores, over the pairs without ties."""
    decided = pairs.without_ties()
    accuracy = share_of("all", rightness(decided.margins))
    if not len(decided):
        return Fit(accuracy, None, None, None, None, int(pairs.ties.sum()))
    margin = float((decided.chosen - decided.rejected).mean())
    means = float(decided.chosen.mean()), float(decided.rejected.mean())
    return Fit(accuracy, float(log_losses(decided.margins).mean()), margin, *means, int(pairs.ties.sum()))


def length_bias(pairs: ScoredPairs) -> LengthBias:
    """Accuracy by difference of length, and how often the longer response wins with people and with the model."""
    decided = pairs.without_ties()
    longer = decided.chosen_tokens - decided.rejected_tokens
    right = rightness(decided.margins)
    unequal = longer != 0
    middle = float(np.median(np.abs(longer[unequal]))) if unequal.any() else 0.0
    inside = [longer < -middle, (longer < 0) & (longer >= -middle), ~unequal, (longer > 0) & (longer <= middle), longer > middle]
    bins = [share_of(_(name), right[of_bin]) for name, of_bin in zip(LENGTH_BINS, inside, strict=True)]
    wins = np.where(longer > 0, right, 1 - right)[unequal]  # whether the longer one scores higher
    differ = wins - (longer[unequal] > 0)
    return LengthBias(
        bins,
        middle,
        float((longer[unequal] > 0).mean()) if unequal.any() else None,
        float(wins.mean()) if unequal.any() else None,
        float(differ.std(ddof=1) / math.sqrt(len(differ))) if len(differ) > 1 else None,
        correlation(np.concatenate([pairs.chosen, pairs.rejected]), np.concatenate([pairs.chosen_tokens, pairs.rejected_tokens])),
    )


def by_group(pairs: ScoredPairs) -> list[PairShare]:
    """Accuracy in each group, the largest groups first, the smallest together at the end; none where the pairs have no groups."""
    decided = pairs.without_ties()
    counts = Counter(group for group in decided.groups if group)
    named = [group for group, _ in counts.most_common(MOST_GROUPS if len(counts) <= MOST_GROUPS else MOST_GROUPS - 1)]
    right, groups = rightness(decided.margins), np.asarray(decided.groups, dtype=object)
    shares = [share_of(group, right[groups == group]) for group in named]
    if len(counts) > len(named):
        rest = np.asarray([bool(group) and group not in named for group in decided.groups])
        shares.append(share_of(_("{count} other groups").format(count=len(counts) - len(named)), right[rest]))
    return shares


def gold_agreement(pairs: ScoredPairs) -> GoldAgreement | None:
    """How the model orders responses beside the gold reward; None where there is no gold."""
    if pairs.chosen_gold is None or pairs.rejected_gold is None or not len(pairs):
        return None
    gold = pairs.chosen_gold - pairs.rejected_gold
    unequal = gold != 0
    agrees = rightness(pairs.margins * np.sign(gold))[unequal]
    scores, golds = np.concatenate([pairs.chosen, pairs.rejected]), np.concatenate([pairs.chosen_gold, pairs.rejected_gold])
    decided = unequal & ~pairs.ties
    people = share_of("people", rightness(gold)[decided])
    return GoldAgreement(share_of("gold", agrees), people, correlation(ranks(scores), ranks(golds)))


def correlation(left: Numbers, right: Numbers) -> float | None:
    """Pearson's correlation; None where one of them does not vary."""
    if len(left) < 2 or not (left.std() > 0 and right.std() > 0):
        return None
    return float(np.corrcoef(left, right)[0, 1])


def ranks(values: Numbers) -> Numbers:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    return (ends - (counts - 1) / 2)[inverse]
