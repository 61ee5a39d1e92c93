"""What holds in the scenes of ``parts/after_gae.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math
import statistics

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.parts.after_gae import EDGE, REAL
from tests.lessons.by_hand import all_close, close
from tests.lessons.claims import Claims


def whitened_by_hand(n: Numbers) -> bool:
    slots = [*n["before"], *([0.0, 0.0] if n["padding"] else [])]
    mean, variance = statistics.fmean(slots), statistics.variance(slots)
    return all_close(n["after"], [(x - mean) / math.sqrt(variance + 1e-8) for x in n["before"]], 1e-7)


def into_values_by_hand(n: Numbers) -> list[float]:
    """Of L = −Σ A at ratio 1: V_j stands in δ_j with a minus, and in δ_{j−1} with a plus."""
    if n["detach"]:
        return [0.0] * REAL
    actual = []
    for j in range(REAL):
        minus = sum(n["lam"] ** (j - t) for t in range(j + 1))
        plus = sum(n["lam"] ** (j - 1 - t) for t in range(j))
        actual.append(minus - plus)
    return actual


CLAIMS: Claims = {
    "whitening": {
        "whitening takes the mean away and divides by the deviation": whitened_by_hand,
        "what turns lies above zero, and below the mean that is taken away": lambda n: (
            n["turned"] == sum(EDGE < x < sum(n["before"]) / (n["tokens"] + 2 * n["padding"]) - EDGE for x in n["before"])
        ),
        "without the padding, the mean is zero": lambda n: n["padding"] or abs(n["mean_after"]) < 1e-6,
    },
    "constants": {
        "the policy is pushed by minus the advantage": lambda n: all_close(n["into_policy"], [-a for a in n["advantages"]]),
        "the gradient into the values is the one by hand": lambda n: all_close(n["into_values"], into_values_by_hand(n)),
        "a loss that reaches the values falls without a better word": lambda n: (
            close(n["loss"], n["loss_after"]) if n["detach"] else n["loss_after"] < n["loss"]
        ),
    },
}
