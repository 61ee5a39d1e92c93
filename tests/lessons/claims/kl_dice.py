"""What holds in the scenes of ``parts/kl_dice.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.parts.kl_dice import EDGE, REF, WORDS
from tests.lessons.by_hand import all_close, close, kl_estimate, log_softmax
from tests.lessons.claims import Claims


def kl_by_hand(policy: list[float], ref: list[float], estimator: str = "k1") -> float:
    p, q = log_softmax(policy), log_softmax(ref)
    return sum(math.exp(a) * kl_estimate(a - b, estimator) for a, b in zip(p, q, strict=True))


def samples_are_right(n: Numbers) -> bool:
    p, q = log_softmax(n["policy"]), log_softmax(REF)
    d = [p[token] - q[token] for token in n["ids"]]
    return all(all_close(samples, [kl_estimate(x, name) for x in d]) for name, samples in n["samples"].items())


def only_the_likeliest(n: Numbers) -> bool:
    ranked = sorted(range(len(WORDS)), key=lambda token: -n["policy"][token])
    return set(n["ids"]) <= set(ranked[: int(n["top_k"])])


CLAIMS: Claims = {
    "dice": {
        "the exact KL is the sum over the vocabulary": lambda n: close(n["exact"], kl_by_hand(n["policy"], REF)),
        "k1 and k3 have no bias": lambda n: abs(n["bias_k1"]) < EDGE and abs(n["bias_k3"]) < EDGE,
        "k2 and abs have the bias that their sums say": lambda n: all(
            close(n[f"bias_{name}"] + n["exact"], kl_by_hand(n["policy"], REF, name)) for name in ("k2", "abs")
        ),
        "each estimate is its formula at the drawn token": samples_are_right,
        "only k1 can be negative": lambda n: all(min(n["samples"][name]) >= 0 for name in ("k2", "k3", "abs")),
    },
    "cut": {
        "only the likeliest tokens are drawn": only_the_likeliest,
        "the exact KL is the sum over the vocabulary": lambda n: close(n["exact"], kl_by_hand(n["policy"], REF)) and n["exact"] > 0,
        "each estimate is its formula at the drawn token": samples_are_right,
        "k3 is never negative, whatever the dice": lambda n: n["mean_k3"] >= 0,
    },
}
