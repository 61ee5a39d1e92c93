"""What the finished runs say: paired differences, by the rule of the plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.ablations.plan import ARMS, BASELINE, SEEDS, SMALLEST, T_95

Word = Literal["differs", "leans", "no difference", "unfinished"]
Run = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """Changed less unchanged, in one outcome.

    Attributes:
        pairs: one for each seed whose two runs are finished, in the order of the seeds.
        interval: of 95 %; None while there are not all pairs.
    """

    outcome: str
    pairs: tuple[float, ...]
    mean: float
    interval: tuple[float, float] | None
    word: Word


def outcomes_of(run: Run) -> dict[str, float]:
    """The outcomes of one run."""
    fit = [value for value in run["curves"]["value_fit"][1:] if value is not None]
    clipped = run["curves"]["clipped"]
    return {
        "gold": run["fresh"]["gold"],
        "kl": run["fresh"]["kl"],
        "clipped": sum(clipped) / len(clipped),
        "value_fit": sum(fit) / len(fit),
        "early_value_fit": sum(fit[:9]) / len(fit[:9]),
    }


def difference(outcome: str, pairs: Sequence[float]) -> Difference:
    """By the rule. Raises ValueError without any pair."""
    if not pairs:
        raise ValueError("there is no pair")
    mean = sum(pairs) / len(pairs)
    if len(pairs) < len(SEEDS):
        return Difference(outcome, tuple(pairs), mean, None, "unfinished")
    error = math.sqrt(sum((pair - mean) ** 2 for pair in pairs) / (len(pairs) - 1) / len(pairs))
    low, high = mean - T_95 * error, mean + T_95 * error
    word: Word = "no difference"
    if abs(mean) >= SMALLEST[outcome]:
        if low > 0 or high < 0:
            word = "differs"
        elif min(pairs) > 0 or max(pairs) < 0:
            word = "leans"
    return Difference(outcome, tuple(pairs), mean, (low, high), word)


def differences(runs: Sequence[Run]) -> dict[str, list[Difference]]:
    """For each choice that has a pair: gold, KL, and what its argument is about."""
    told = {(run["arm"], run["seed"]): outcomes_of(run) for run in runs}
    found: dict[str, list[Difference]] = {}
    for arm in ARMS:
        seeds = [seed for seed in SEEDS if (arm.name, seed) in told and (BASELINE, seed) in told]
        if arm.name != BASELINE and seeds:
            names = dict.fromkeys(("gold", "kl", arm.about))
            pairs = {name: [told[arm.name, seed][name] - told[BASELINE, seed][name] for seed in seeds] for name in names}
            found[arm.name] = [difference(name, own) for name, own in pairs.items()]
    return found
