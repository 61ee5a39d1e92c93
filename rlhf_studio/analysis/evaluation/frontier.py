"""Reward and gold against the distance from the reference: the frontier, and where a reward is over-optimised.

The horizontal axis is √KL, the square root of the mean KL from the reference: in Gao, Schulman and Hilton 2023, "Scaling Laws for Reward
Model Overoptimization", the proxy reward goes on rising along it while the gold reward rises, turns and falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.evaluation.answers import GOLD, SCORE, PolicyAnswers
from rlhf_studio.analysis.evaluation.compare import prompt_means
from rlhf_studio.analysis.evaluation.intervals import Interval, mean
from rlhf_studio.analysis.evaluation.many import LEVEL, p_values
from rlhf_studio.analysis.series import evenly
from rlhf_studio.language import _, ngettext
from rlhf_studio.units import score_text


@dataclass(frozen=True)
class Point:
    """A policy on the frontier.

    Attributes:
        kl: mean KL of an answer from the reference, in nats.
        root_kl: its square root; 0 where the estimate of a tiny KL came out negative.
        measures: mean by measure.
    """

    policy: str
    kl: Interval
    root_kl: float
    measures: dict[str, Interval]


@dataclass(frozen=True)
class Frontier:
    """All policies whose KL is known, the nearest to the reference first.

    Attributes:
        best: the policy with the highest gold; empty without gold.
        over_optimised: policies with a higher score and a lower gold than ``best``, both by more than chance explains. The chance that
            one or more are named wrongly is about 5 %, however many policies there are (:mod:`.many`).
        sentence: what it shows, for people; empty where there is nothing to say.
    """

    points: list[Point]
    best: str
    over_optimised: list[str]
    sentence: str


def frontier(policies: Mapping[str, PolicyAnswers], measures: list[str]) -> Frontier:
    """The frontier of some policies."""
    points = []
    for policy in policies.values():
        kl = mean(policy.kl, policy.prompts)
        if kl.value is None:
            continue
        means = {name: mean(policy.measures[name], policy.prompts) for name in measures if name in policy.measures}
        points.append(Point(policy.name, kl, math.sqrt(max(kl.value, 0.0)), means))
    points.sort(key=lambda point: point.root_kl)
    golden = [(point.measures[GOLD].value or 0.0, point.policy) for point in points if _has(point, GOLD)]
    if len(golden) < 2 or not all(_has(point, SCORE) for point in points):
        return Frontier(points, golden[0][1] if golden else "", [], "")
    best = max(golden, key=lambda pair: pair[0])[1]
    over = _over_optimised([policies[point.policy] for point in points], best)
    return Frontier(points, best, over, _sentence(points, best, over))


def titled(policy: str) -> str:
    """A policy's name in a sentence: ``Tiny world@30``, the policy of step 30 of that run, as "Tiny world, step 30"; ``@start``
    in words, too."""
    name, which = _run_and_step(policy)
    if which == "start":
        return _("{name}, at its start").format(name=name)
    return _("{name}, step {step}").format(name=name, step=which) if name else policy


def _run_and_step(policy: str) -> tuple[str, str]:
    """The run's name and ``start`` or a step; two empty texts for what is no policy of a run."""
    name, _at, which = policy.rpartition("@")
    return (name, which) if name and (which == "start" or which.isdecimal()) else ("", "")


def _when(policy: str) -> str:
    """Which policy of its run, where that is known: ``before training``, ``after 36 steps``."""
    which = _run_and_step(policy)[1]
    if which == "start":
        return _("before training")
    return ngettext("after {count} step", "after {count} steps", int(which)).format(count=which)


def _has(point: Point, measure: str) -> bool:
    return measure in point.measures and point.measures[measure].value is not None


def _value(point: Point, measure: str) -> float:
    return point.measures[measure].value or 0.0


def _over_optimised(policies: list[PolicyAnswers], best: str) -> list[str]:
    """Those with a surely higher score and a surely lower gold than ``best``, in the order given."""
    prompts = sorted({int(prompt) for policy in policies for prompt in policy.prompts})
    tables = {}
    for measure in (GOLD, SCORE):
        means = [prompt_means(policy.measures[measure], policy.prompts) for policy in policies]
        tables[measure] = np.array([[own.get(prompt, np.nan) for own in means] for prompt in prompts], float)  # (prompts, policies)
    top = next(index for index, policy in enumerate(policies) if policy.name == best)
    chance = p_values(tables)
    sure = (chance[GOLD][top] <= LEVEL) & (chance[SCORE][top] <= LEVEL)
    over = []
    for index in np.flatnonzero(sure).tolist():
        gold, score = (np.nanmean(table[:, index] - table[:, top]) for table in tables.values())
        if gold < 0 < score:
            over.append(policies[index].name)
    return over


def _sentence(points: list[Point], best: str, over: list[str]) -> str:
    at = {point.policy: point for point in points}
    top = at[best]
    gold, score = (top.measures[name].value or 0.0 for name in (GOLD, SCORE))
    if not over:
        values = {"best": titled(best), "gold": score_text(gold), "root_kl": top.root_kl}
        unsure = [point.policy for point in points if _value(point, SCORE) > score and _value(point, GOLD) < gold]
        if not unsure:
            none = _("Gold is highest for {best} ({gold}, √KL {root_kl:.2f}); no policy has a higher score and a lower gold.")
            return none.format(**values)
        return ngettext(
            "Gold is highest for {best} ({gold}, √KL {root_kl:.2f}); {named} has a higher score and a lower gold, but that may be chance.",
            "Gold is highest for {best} ({gold}, √KL {root_kl:.2f}); {named} have a higher score and a lower gold, but that may be chance.",
            len(unsure),
        ).format(named=titled(unsure[0]) if len(unsure) == 1 else _("{count} policies").format(count=len(unsure)), **values)
    worst = min(over, key=lambda name: at[name].measures[GOLD].value or 0.0)
    then_gold, then_score = (at[worst].measures[name].value or 0.0 for name in (GOLD, SCORE))
    alone = len({_run_and_step(point.policy)[0] for point in points}) == 1 and bool(_run_and_step(best)[0])
    sentence = (
        _(
            "The judge was fooled (the reward is over-optimised): {best} the score is {score} and gold {gold}; "
            "{worst} the score is {then_score} and gold {then_gold}."
        )
        if alone
        else _(
            "The judge was fooled (the reward is over-optimised): from {best} to {worst} the score rises from "
            "{score} to {then_score} and gold falls from {gold} to {then_gold}."
        )
    )
    return sentence.format(
        best=_when(best) if alone else titled(best),
        worst=_when(worst) if alone else titled(worst),
        score=score_text(score),
        then_score=score_text(then_score),
        gold=score_text(gold),
        then_gold=score_text(then_gold),
    )


def thinned(points: list[Point], most: int) -> list[Point]:
    """At most so many of the points, evenly spread, the first and the last among them."""
    return [points[index] for index in evenly(len(points), most)]
