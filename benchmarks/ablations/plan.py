"""The runs, the outcomes and the rule of the benchmark. Written down before any of its runs was made.

Every run is the recipe ``world`` with at most one choice changed, for each of three seeds: 30 steps of 64 responses. The seed fixes the
prompts and the first answers, so a run and the unchanged run of the same seed are a pair.

At its end each policy answers the 128 held-out prompts four times anew. These 512 answers give two outcomes for every choice: ``gold``, and
``kl``, the exact KL of their tokens to the policy as it started, whatever estimator or reference the run itself used. A third outcome,
:attr:`Arm.about`, is what the argument about the choice says that it changes.

**Rule.** The three paired differences (changed less unchanged) have a mean and a 95 % interval by Student's t with two degrees of freedom.
A choice *differs* in an outcome when the interval leaves out 0 and the mean is at least :data:`SMALLEST`. It *leans* when all three
differences have one sign and their mean is at least as large, but the interval holds 0. Otherwise *no difference* was seen. Nothing is
added to the plan afterwards to turn one word into another. Some two dozen comparisons are made: about one *differs* by chance alone, and
three seeds see large differences only, so *no difference* is not a proof of none.

The arguments name one choice that no setting has: the reference replaced by the policy now and then (reset). What there is instead is a
reference that follows the policy slowly, ``ppo.reference_ema``, and that is what is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SEEDS = (0, 1, 2)
ANSWERS = 512
T_95 = 4.302653  # Student's t, two degrees of freedom, two sides
SMALLEST = {"gold": 0.05, "kl": 0.5, "clipped": 0.01, "value_fit": 0.05, "early_value_fit": 0.05}
"""Means of differences that are too small to matter: gold in [-1, 1], nats per answer, shares of tokens, shares of the variance."""
OUTCOMES = {
    "gold": "mean gold of the fresh answers",
    "kl": "exact KL of the fresh answers to the policy as it started, in nats per answer",
    "clipped": "share of tokens that were clipped, mean over all steps",
    "value_fit": "explained variance of the values, mean over all steps but the first",
    "early_value_fit": "explained variance of the values, mean over steps 2 to 10",
}
BASELINE = "unchanged"


@dataclass(frozen=True)
class Arm:
    """A choice.

    Attributes:
        settings: what differs from the recipe ``world``.
        about: the outcome that the argument is about.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    about: str = "kl"


ARMS = (
    Arm(BASELINE),
    Arm("value-clipping", {"ppo.cliprange_value": 0.2}, "value_fit"),
    Arm("no-whitening", {"ppo.whiten_advantages": False}, "clipped"),
    Arm("one-epoch", {"ppo.ppo_epochs": 1}, "clipped"),
    Arm("eight-epochs", {"ppo.ppo_epochs": 8}, "clipped"),
    Arm("critic-warm-up", {"ppo.critic_warmup_steps": 5}, "early_value_fit"),
    Arm("k3-in-reward", {"ppo.kl_estimator": "k3"}),
    Arm("k3-in-loss", {"ppo.kl_estimator": "k3", "ppo.kl_placement": "loss"}),
    Arm("following-reference", {"ppo.reference_ema": 0.1}),
    Arm("reward-scaling", {"reward.scaling": "scale"}),
)


@dataclass(frozen=True)
class Planned:
    """One run."""

    arm: Arm
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm.name}-{self.seed}"


def planned_runs() -> list[Planned]:
    """All runs, one seed of every choice before the next seed, so that an unfinished benchmark has whole pairs."""
    return [Planned(arm, seed) for seed in SEEDS for arm in ARMS]
