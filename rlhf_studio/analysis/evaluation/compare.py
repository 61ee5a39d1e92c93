"""Two policies on the same prompts: differences and win rates; and how often a reward orders answers as gold does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.evaluation.answers import GOLD, PolicyAnswers
from rlhf_studio.analysis.evaluation.intervals import NOTHING, Interval, mean, share

TIE = 1e-6
"""Scores that differ by less are equal: the same text in batches of other sizes differs by rounding."""


@dataclass(frozen=True)
class WinRate:
    """How often one policy's answer is better than the other's to the same prompt.

    Attributes:
        rate: wins and half of the ties, as a share of all comparisons.
        wins, ties, losses: how many comparisons came out so. Each answer is compared with each of the other policy's to its prompt.
    """

    rate: Interval
    wins: int
    ties: int
    losses: int


def difference(policy: PolicyAnswers, other: PolicyAnswers, measure: str) -> Interval:
    """Mean of ``policy`` less mean of ``other`` in a measure, over the prompts that both have, paired by prompt."""
    return paired(_numbers_of(policy, measure), policy.prompts, _numbers_of(other, measure), other.prompts)


def _numbers_of(policy: PolicyAnswers, measure: str) -> np.ndarray:
    own = {"kl": policy.kl, "length": policy.lengths}
    return own[measure] if measure in own else policy.measures.get(measure, np.full(len(policy.prompts), np.nan))


def paired(ours: np.ndarray, our_prompts: np.ndarray, theirs: np.ndarray, their_prompts: np.ndarray) -> Interval:
    """The mean over prompts of (mean of ours − mean of theirs) on each prompt; shapes (N,), (N,), (M,), (M,)."""
    mine, yours = prompt_means(ours, our_prompts), prompt_means(theirs, their_prompts)
    both = sorted(set(mine) & set(yours))
    return mean(np.array([mine[prompt] - yours[prompt] for prompt in both], float), np.array(both, np.int64))


def prompt_means(values: np.ndarray, prompts: np.ndarray) -> dict[int, float]:
    """The mean of the values (N,) on each prompt, by the numbers of the prompts (N,). Prompts without a finite value are left out."""
    known = np.isfinite(values)
    return {int(prompt): float(values[known & (prompts == prompt)].mean()) for prompt in np.unique(prompts[known])}


@dataclass(frozen=True)
class AnswerPairs:
    """All pairs of an answer of one policy and one of another (or of the same) to the same prompt.

    Attributes:
        rows, columns: (N,) indices of the answers of the first policy and of the other one.
        prompts: (N,) the prompts' numbers.
        same: (N,) whether the two texts are equal.
    """

    rows: np.ndarray
    columns: np.ndarray
    prompts: np.ndarray
    same: np.ndarray


def pairs_of(policy: PolicyAnswers, other: PolicyAnswers) -> AnswerPairs:
    """Each answer of ``policy`` with each of ``other`` to its prompt; where they are the same policy, each pair of two answers once."""
    rows: list[int] = []
    columns: list[int] = []
    theirs: dict[int, list[int]] = {}
    for column, prompt in enumerate(other.prompts.tolist()):
        theirs.setdefault(prompt, []).append(column)
    for row, prompt in enumerate(policy.prompts.tolist()):
        partners = [column for column in theirs.get(prompt, []) if policy is not other or column > row]
        rows += [row] * len(partners)
        columns += partners
    texts, others = policy.texts, other.texts
    same = np.array([texts[row] == others[column] for row, column in zip(rows, columns, strict=True)], bool)
    taken = np.array(rows, np.int64)
    return AnswerPairs(taken, np.array(columns, np.int64), policy.prompts[taken], same)


def win_rate(policy: PolicyAnswers, other: PolicyAnswers, measure: str, pairs: AnswerPairs | None = None) -> WinRate:
    """How often ``policy`` is better than ``other`` by a measure. Equal texts and scores that differ by rounding alone are ties."""
    pairs = pairs or pairs_of(policy, other)
    gap = _numbers_of(policy, measure)[pairs.rows] - _numbers_of(other, measure)[pairs.columns]
    points = np.where((np.abs(gap) <= TIE) | pairs.same, 0.5, gap > 0)
    known = np.isfinite(gap)
    return of_points(points[known], pairs.prompts[known])


def of_points(points: np.ndarray, prompts: np.ndarray) -> WinRate:
    """The win rate of comparisons (N,), a win 1, a tie ½, a loss 0, on the prompts (N,). For votes of people as well."""
    if not len(points):
        return WinRate(NOTHING, 0, 0, 0)
    return WinRate(share(points, prompts), int((points == 1).sum()), int((points == 0.5).sum()), int((points == 0).sum()))


@dataclass(frozen=True)
class Agreement:
    """How often a reward prefers the answer that gold prefers.

    Attributes:
        within: among the answers of the policy itself to one prompt; needs several answers per prompt.
        against: between an answer of the policy and one of the first policy to the same prompt.

    Pairs that are equal in gold are left out; a pair that is equal in the reward counts half.
    """

    within: Interval
    against: Interval


def agreement(policy: PolicyAnswers, measure: str, own: AnswerPairs, first: PolicyAnswers, across: AnswerPairs | None) -> Agreement:
    """How the order of the answers by ``measure`` agrees with gold's. A reward model loses it on answers that it never learned from.

    ``own`` are the pairs of the policy's answers, ``across`` those with the answers of ``first``; None where that is the policy itself.
    """
    against = NOTHING if across is None else _agreement(policy, first, measure, across)
    return Agreement(_agreement(policy, policy, measure, own), against)


def _agreement(policy: PolicyAnswers, other: PolicyAnswers, measure: str, pairs: AnswerPairs) -> Interval:
    gold, reward = (_numbers_of(policy, name)[pairs.rows] - _numbers_of(other, name)[pairs.columns] for name in (GOLD, measure))
    counted = np.isfinite(gold) & np.isfinite(reward) & (np.abs(gold) > TIE)
    points = np.where(np.abs(reward) <= TIE, 0.5, (reward > 0) == (gold > 0))
    return share(points[counted], pairs.prompts[counted])
