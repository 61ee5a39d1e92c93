"""The answers of an evaluation run: which policy gave each, to which prompt, and what other models say of it.

An answer is a :class:`~rlhf_studio.runs.records.RolloutRecord`, so that whatever shows recorded responses shows it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import pvariance

from rlhf_studio.runs.records import RolloutRecord


@dataclass(frozen=True, kw_only=True)
class Answer(RolloutRecord):
    """One answer of one policy to one prompt.

    ``score`` is the weighted sum of ``parts``, before scaling, clipping and penalties; ``kl`` is NaN where the policy has other tokens
    than the reference, or is a file of completions. ``tokens`` is None.

    Attributes:
        policy: the policy's name within the run.
        place: the prompt's place among the run's prompts, from 0.
        draw: which of the policy's answers to this prompt, from 0. Equal draws of two policies had the same random numbers.
        judge: score of the reward model that was not used in training; NaN without one.
        ref_logprob: sum of the reference's log-probabilities of the answer's tokens at temperature 1, in nats.
        ref_length: how many tokens the answer has for the reference.
        members: of each component that is an ensemble the scores of its models, times the component's weight; empty without one.
    """

    policy: str
    place: int
    draw: int
    judge: float
    ref_logprob: float
    ref_length: int
    members: dict[str, list[float]] = field(default_factory=dict)


def disagreement(answer: Answer, other: Answer | None = None) -> float | None:
    """How far the models of an ensemble lie apart over an answer, or over how much better it is than ``other``; None without one.

    With the scores s_i of k models it is their standard deviation √(Σ (s_i − m)² / k), in points of the score. Several ensembles add up
    as independent sums do, by their variances. It is large on texts unlike those that the models learned from (Lakshminarayanan et al.
    2017), and on pairs that they are not of one mind about.
    """
    if not answer.members:
        return None
    variance = 0.0
    for name, own in answer.members.items():
        theirs = [0.0] * len(own) if other is None else other.members[name]
        variance += pvariance([mine - yours for mine, yours in zip(own, theirs, strict=True)])
    return math.sqrt(variance)
