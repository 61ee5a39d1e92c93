"""Everything that the answers of an evaluation run say, in one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.evaluation.answers import GOLD, JUDGE, SCORE, PolicyAnswers, by_policy, known_measures
from rlhf_studio.analysis.evaluation.compare import Agreement, WinRate, agreement, difference, pairs_of, win_rate
from rlhf_studio.analysis.evaluation.frontier import Frontier, frontier
from rlhf_studio.analysis.evaluation.intervals import NOTHING, Interval, exponential, mean, ratio
from rlhf_studio.analysis.evaluation.texts import distinct, repetition
from rlhf_studio.language import _
from rlhf_studio.runs.reader import RunReader

TEXT_LOGPROB, TEXT_TOKENS = "evaluation/text_logprob/", "evaluation/text_tokens/"
"""Metrics of a step, one for each policy: what its share of the held-out text is worth under that policy."""


@dataclass(frozen=True)
class PolicyReport:
    """One policy's row of the table.

    Attributes:
        measures: mean by measure (``score``, ``gold``, ``judge``, ``reward/NAME``).
        length: in the policy's own tokens.
        stopped: share of the answers that ended by themselves; None for a file of completions.
        kl: from the reference, in nats for each answer.
        disagreement: mean standard deviation of an answer's scores over the models of an ensemble.
        perplexity: of the answers under the reference.
        text_perplexity: of the held-out text under the policy; None without one.
        distinct: distinct-1, -2 and -3 over all answers.
        repetition: mean share of repeated phrases of four words.
        differences: by measure, and ``kl`` and ``length``: less the first policy's, paired by prompt.
        win_rates: by measure, against the first policy.
        agreements: by measure, how its order of this policy's answers agrees with gold's; empty without gold.
    """

    name: str
    answers: int
    measures: dict[str, Interval]
    length: Interval
    stopped: float | None
    kl: Interval
    disagreement: Interval
    perplexity: Interval
    text_perplexity: float | None
    distinct: tuple[float | None, float | None, float | None]
    repetition: float | None
    differences: dict[str, Interval]
    win_rates: dict[str, WinRate]
    agreements: dict[str, Agreement]


@dataclass(frozen=True)
class Report:
    """An evaluation run.

    Attributes:
        measures: what answers are measured by, in order.
        decides: the measure that win rates are about first: gold where it is known, else the judge, else the score.
        first: the policy that the others are compared with.
        prompts: how many prompts have been answered so far.
    """

    measures: list[str]
    decides: str
    first: str
    prompts: int
    policies: list[PolicyReport]
    frontier: Frontier


def report_of(reader: RunReader, first: str = "") -> Report:
    """The report of an evaluation run, over what is recorded so far.

    ``first``: the policy to compare the others with; without it the one that answered first. Raises StoreError, and ValueError for a
    policy that has no answers in this run.
    """
    with reader.snapshot():
        answers = reader.answers()
        names = [name for name in reader.metric_names() if name.startswith((TEXT_LOGPROB, TEXT_TOKENS))]
        columns = reader.columns(names)[1]
    return report(by_policy(answers), {name: float(np.nansum(values)) for name, values in columns.items()}, first)


def last_win_rate(reader: RunReader) -> float | None:
    """The win rate of the last policy against the first one by the measure that decides; None with one policy, and without a measure."""
    policies = by_policy(reader.answers())
    if len(policies) < 2:
        return None
    first, *_others, last = policies.values()
    return win_rate(last, first, _decides(known_measures(policies))).rate.value


def _decides(measures: Sequence[str]) -> str:
    return next((name for name in (GOLD, JUDGE, SCORE) if name in measures), SCORE)


def report(policies: Mapping[str, PolicyAnswers], text: Mapping[str, float], first: str = "") -> Report:
    """As :func:`report_of`, of given answers. ``text``: sums over all steps of the metrics about the held-out text."""
    if first and first not in policies:
        raise ValueError(
            _("the run has no answers of {first!r}; it has: {policies}").format(first=first, policies=", ".join(policies) or "none")
        )
    measures = known_measures(policies)
    baseline = first or next(iter(policies), "")
    decides = _decides(measures)
    rows = [_row(policy, policies[baseline], measures, text) for policy in policies.values()]
    prompts = {int(prompt) for policy in policies.values() for prompt in policy.prompts}
    return Report(measures, decides, baseline, len(prompts), rows, frontier(policies, measures))


def _row(policy: PolicyAnswers, first: PolicyAnswers, measures: list[str], text: Mapping[str, float]) -> PolicyReport:
    records, others = policy.records, policy.name != first.name
    own, across = pairs_of(policy, policy), pairs_of(policy, first) if others else None
    known = [record.stopped for record in records if record.stopped is not None]
    repeated = [share for share in map(repetition, policy.texts) if share is not None]
    tokens = text.get(TEXT_TOKENS + policy.name, 0.0)
    nats = -text[TEXT_LOGPROB + policy.name] / tokens if tokens else None
    logprobs = np.array([record.ref_logprob for record in records], float)
    lengths = np.array([record.ref_length for record in records], float)
    varied = [distinct(policy.texts, n) for n in (1, 2, 3)]
    return PolicyReport(
        name=policy.name,
        answers=len(records),
        measures={name: mean(policy.measures[name], policy.prompts) if name in policy.measures else NOTHING for name in measures},
        length=mean(policy.lengths, policy.prompts),
        stopped=sum(known) / len(known) if known else None,
        kl=mean(policy.kl, policy.prompts),
        disagreement=mean(policy.disagreement, policy.prompts),
        perplexity=exponential(ratio(-logprobs, lengths, policy.prompts)),
        text_perplexity=None if nats is None else float(np.exp(min(nats, 700.0))),
        distinct=(varied[0], varied[1], varied[2]),
        repetition=sum(repeated) / len(repeated) if repeated else None,
        differences={name: difference(policy, first, name) for name in (*measures, "kl", "length")} if others else {},
        win_rates={name: win_rate(policy, first, name, across) for name in measures} if others else {},
        agreements={name: agreement(policy, name, own, first, across) for name in measures if name != GOLD} if GOLD in measures else {},
    )
