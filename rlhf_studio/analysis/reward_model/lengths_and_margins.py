"""How far apart a model scores two responses, and how much of its accuracy the length of the responses would give alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.reward_model.accuracy import PairShare, rightness, share_of
from rlhf_studio.analysis.reward_model.pairs import ScoredPairs

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Margins:
    """Score of the chosen less that of the rejected response, in points of the score as PPO sees it; pairs without ties.

    Attributes:
        mean, deviation: None without pairs.
        quantiles: share of the pairs -> the margin that so many do not exceed, linear between two pairs; empty without pairs.
        equal: pairs whose two scores are the same; each counts one half in the accuracy.
    """

    mean: float | None
    deviation: float | None
    quantiles: dict[float, float]
    equal: int


@dataclass(frozen=True)
class LengthRule:
    """The model beside a rule that looks at lengths alone; pairs without ties.

    Attributes:
        longer: how often the model is right where people preferred the longer response.
        shorter: the same where they preferred the shorter one.
        rule: how often "the longer response is better" is right over all pairs; two equal lengths count one half.
    """

    longer: PairShare
    shorter: PairShare
    rule: PairShare


def margins_of(pairs: ScoredPairs) -> Margins:
    """The margins of the pairs."""
    decided = pairs.without_ties()
    margins = decided.chosen - decided.rejected
    if not len(margins):
        return Margins(None, None, {}, 0)
    quantiles = dict(zip(QUANTILES, np.quantile(margins, QUANTILES).tolist(), strict=True))
    return Margins(float(margins.mean()), float(margins.std()), quantiles, int((margins == 0).sum()))


def length_rule(pairs: ScoredPairs) -> LengthRule:
    """The model's accuracy by which response is longer, and the accuracy of the rule."""
    decided = pairs.without_ties()
    difference, right = decided.chosen_tokens - decided.rejected_tokens, rightness(decided.margins)
    return LengthRule(
        share_of("chosen longer", right[difference > 0]),
        share_of("chosen shorter", right[difference < 0]),
        share_of("the longer wins", rightness(difference)),
    )
