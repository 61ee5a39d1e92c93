"""Which setting holds a PPO run back, with a better value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor.bounds import EXCLUDED, MATTERS
from rlhf_studio.analysis.doctor.check import figure
from rlhf_studio.analysis.doctor.expectation import NINE_OF_TEN
from rlhf_studio.analysis.doctor.judges import ScoreSeries
from rlhf_studio.analysis.doctor.remedies import calmer
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.wording import joined
from rlhf_studio.analysis.records import Finding
from rlhf_studio.config.fitting import warm_up
from rlhf_studio.config.usual import USUAL_KL_COEF, usual_rate
from rlhf_studio.language import _

OFTEN_SKIPPED = 0.25  # of the steps; single minibatches are skipped in healthy runs too
FAR_BELOW = 0.3  # of the rate that fits: a third of it needs three times the steps
LARGEST_BATCH = 1024  # responses in a step: what would need more is not a matter of the batch
FOUND = (
    "no-updates", "settings-critic-warm-up", "settings-warm-up", "settings-learning-rate", "not-training", "learning-rate-too-small",
    "learning-rate-gone", "clip-fraction-high", "steps-too-large", "early-stops", "settings-kl", "settings-reward",
)  # fmt: skip
"""Findings that say why a score does not rise, the likeliest first."""


@dataclass(frozen=True)
class Hindrance:
    """What holds a run back.

    Attributes:
        why: a sentence without its full stop.
        changes: the settings with better values, by dotted name.
        check: the finding that it is; empty where it is none.
    """

    why: str
    changes: dict[str, Any]
    check: str = ""

    def __str__(self) -> str:
        values = [f"{name} {f'{value:g}' if isinstance(value, float) else value}" for name, value in self.changes.items()]
        if not values:
            return _("What holds it back: {why}.").format(why=self.why)
        return _("What holds it back: {why}; {values} is better.").format(why=self.why, values=joined(values))


def held_back(run: RunData, series: ScoreSeries, findings: list[Finding]) -> Hindrance | None:
    """The likeliest reason why this score does not rise, or not surely; None where no setting stands out, or where they are not known.

    ``findings`` are those that hold at the newest step.
    """
    if not run.settings_known or not len(run.steps):
        return None
    by_check = {finding.check: finding for finding in findings}
    rules: tuple[Callable[[RunData, ScoreSeries], Iterator[Hindrance]], ...] = (_low_rate, _strong_kl, _small_batch)
    own = (hindrance for rule in rules for hindrance in rule(run, series))
    found = (Hindrance(by_check[name].title, by_check[name].changes, name) for name in FOUND if name in by_check)
    return next((hindrance for part in (_skipped(run), _warming_up(run), found, own) for hindrance in part), None)


def _skipped(run: RunData) -> Iterator[Hindrance]:
    """The ratio threshold left out what was to be learned: the steps are too large for the responses that they learn from."""
    steps = {event.step for event in run.step_events if event.kind == "skip" and "the mean ratio" in event.text.partition(":")[2][:20]}
    if len(steps) > OFTEN_SKIPPED * len(run.steps):
        why = _("minibatches of {count} of {steps} steps were skipped, because the policy moved too far within a step")
        yield Hindrance(why.format(count=len(steps), steps=len(run.steps)), calmer(run))


def _warming_up(run: RunData) -> Iterator[Hindrance]:
    ppo, step = run.in_force.ppo, int(run.steps[-1])
    if ppo.warmup_steps >= max(step, 2):
        why = _("the warm-up lasts until step {step}, so that no step had the whole learning rate yet").format(step=ppo.warmup_steps)
        yield Hindrance(why, {"ppo.warmup_steps": warm_up(run.total_steps or step).value})


def _low_rate(run: RunData, series: ScoreSeries) -> Iterator[Hindrance]:
    usual, rate = usual_rate(run.in_force, run.weights), run.in_force.ppo.learning_rate
    if usual and rate < FAR_BELOW * usual.rate:
        why = _("the learning rate {rate:g} is {times:.2g} times smaller than {whose}")
        yield Hindrance(why.format(rate=rate, times=usual.rate / rate, whose=usual.whose), {"ppo.learning_rate": usual.rate})


def _strong_kl(run: RunData, series: ScoreSeries) -> Iterator[Hindrance]:
    """A KL coefficient above the spread of the scores.

    The policy that maximises the mean score − β KL is the reference tilted by exp(score / β) (Korbak et al. 2022, arXiv:2205.11275). Where
    scores have a normal distribution with spread s, it gains s² / β with a KL of s² / (2 β²): with β = s one s, with half a nat.
    """
    prices = run.column("objective/kl_coef")
    prices = prices[np.isfinite(prices)]
    spread = 1.0 if run.config.reward.scaling != "none" else series.spread
    if len(prices) and spread > 0 and prices[-1] > spread:
        price = float(prices[-1])
        why = _(
            "with a KL coefficient of {price:g} and scores that spread by {spread}, a rise of {rise} is the most that "
            "pays, at a KL of {kl} nats"
        )
        figures = {"rise": figure(spread**2 / price, 2), "kl": figure(spread**2 / (2 * price**2), 2)}
        yield Hindrance(
            why.format(price=price, spread=figure(spread, 2), **figures), {"ppo.kl_coef": min(USUAL_KL_COEF, float(f"{spread / 10:.1g}"))}
        )


def _small_batch(run: RunData, series: ScoreSeries) -> Iterator[Hindrance]:
    """Too few responses for the noise: all steps together should tell a rise that matters from none in nine of ten runs.

    The error of a rise over N steps of B responses is s √(12 / (N B)), as in :mod:`.expectation`, so N B = 12 ((1.645 + 1.28) / 0.25)².
    """
    ppo, steps = run.in_force.ppo, max(run.total_steps, len(run.steps))
    needed = 12 * ((EXCLUDED + NINE_OF_TEN) / MATTERS) ** 2 / steps
    size = ppo.batch_size
    while size < needed:
        size *= 2
    if size >= 2 * ppo.batch_size and size <= LARGEST_BATCH:
        why = _("{count} responses a step are few beside the noise: {steps} steps of them hide a rise of {spreads:g} spreads")
        yield Hindrance(why.format(count=ppo.batch_size, steps=steps, spreads=MATTERS), {"ppo.batch_size": size})
