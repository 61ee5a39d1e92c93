"""What the responses of one step say of its metrics, for records that come from other programs: means, and the errors of these means."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

ERRORS = {"objective/scores": "objective/scores_se", "gold/score": "gold/score_se"}
"""Metrics that have a standard error, and its name."""


def mean_metrics(name: str, values: np.ndarray, prompts: Sequence[Hashable] | None) -> dict[str, float]:
    """The metric ``name`` of the known numbers of a step's responses, and what goes with it; empty without any number.

    Args:
        values: (N,), one for each response of which the number is known. With one that is not finite there is a mean alone.
        prompts: what tells the prompt of each of them from others, N; None where that is not known, and there is no error then.
    """
    if not len(values):
        return {}
    metrics = {name: float(values.mean())}
    if not np.isfinite(values).all():
        return metrics
    error = standard_error(prompts, values) if name in ERRORS and prompts is not None else None
    if error is not None:
        metrics[ERRORS[name]] = error
    if name == "objective/scores":
        metrics |= {"objective/scores_min": float(values.min()), "objective/scores_max": float(values.max())}
        metrics |= {"objective/scores_std": float(values.std(ddof=1))} if len(values) > 1 else {}
    return metrics


def part_metrics(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """``reward/NAME`` for each part of the reward: its mean over the responses that have it; nothing of a part that none has.

    Args:
        parts: of each response its parts by name; NaN as if it were not there.
    """
    metrics: dict[str, float] = {}
    for name in dict.fromkeys(name for own in parts for name in own):
        values = [own[name] for own in parts if not math.isnan(own.get(name, math.nan))]
        metrics |= {f"reward/{name}": float(np.mean(values))} if values else {}
    return metrics


def standard_error(prompts: Sequence[Hashable], values: np.ndarray) -> float | None:
    """The standard error of the mean of ``values`` (N,), those of one prompt not being independent; None with a single prompt.

    With n prompts, whose values have the sums s_i of k_i values each, and the mean m of all values it is
    √(n / (n - 1) · Σ (s_i - k_i m)²) / N. With one value for each prompt that is the standard deviation over √N, and with k for each the
    standard deviation of the prompts' means over √n.
    """
    numbers: dict[Hashable, int] = {}
    prompt_of_value = [numbers.setdefault(prompt, len(numbers)) for prompt in prompts]
    n = len(numbers)
    if n < 2:
        return None
    sums = np.bincount(prompt_of_value, values - values.mean(), n)
    return float(np.sqrt(n / (n - 1) * np.sum(sums**2)) / len(values))
