"""The answers of an evaluation run, by policy and prompt, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlhf_studio.runs.evaluation.answers import Answer, disagreement

SCORE, GOLD, JUDGE = "score", "gold", "judge"
"""What an answer is measured by, beside the components of its score (``reward/NAME``)."""
PART = "reward/"


@dataclass(frozen=True)
class PolicyAnswers:
    """All answers of one policy.

    Attributes:
        name: the policy's name within the run.
        records: the N answers, by prompt and draw.
        prompts: (N,) the number of each answer's prompt.
        measures: by name the scores (N,), float64: ``score``, ``gold``, ``judge`` and ``reward/NAME``; NaN where there is none.
        kl: (N,) in nats; NaN where it is not known.
        lengths: (N,) in the policy's own tokens.
        disagreement: (N,) how far the models of the reward's ensembles lie apart; NaN without an ensemble.
    """

    name: str
    records: list[Answer]
    prompts: np.ndarray
    measures: dict[str, np.ndarray]
    kl: np.ndarray
    lengths: np.ndarray
    disagreement: np.ndarray

    @property
    def texts(self) -> list[str]:
        """What it answered."""
        return [record.response for record in self.records]


def by_policy(answers: Sequence[Answer]) -> dict[str, PolicyAnswers]:
    """The answers of each policy, in the order in which the policies answered first."""
    grouped: dict[str, list[Answer]] = {}
    for answer in answers:
        grouped.setdefault(answer.policy, []).append(answer)
    return {name: _arrays(name, sorted(own, key=lambda answer: (answer.place, answer.draw))) for name, own in grouped.items()}


def _arrays(name: str, records: list[Answer]) -> PolicyAnswers:
    measures = {
        SCORE: _numbers([record.score for record in records]),
        GOLD: _numbers([record.gold for record in records]),
        JUDGE: _numbers([record.judge for record in records]),
    }
    parts = list(dict.fromkeys(part for record in records for part in record.parts))
    measures |= {PART + part: _numbers([record.parts.get(part) for record in records]) for part in parts}
    prompts = np.array([record.place for record in records], np.int64)
    lengths = np.array([record.length for record in records], np.float64)
    kl, apart = (_numbers(values) for values in ([record.kl for record in records], [disagreement(record) for record in records]))
    return PolicyAnswers(name, records, prompts, measures, kl, lengths, apart)


def known_measures(policies: Mapping[str, PolicyAnswers]) -> list[str]:
    """The names of the measures that at least one answer has, in their order; a component that is the whole score is not named again."""
    names = list(dict.fromkeys(name for policy in policies.values() for name in policy.measures))
    if sum(name.startswith(PART) for name in names) == 1:
        names = [name for name in names if not name.startswith(PART)]
    return [name for name in names if any(np.isfinite(policy.measures.get(name, np.empty(0))).any() for policy in policies.values())]


def _numbers(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], np.float64)
