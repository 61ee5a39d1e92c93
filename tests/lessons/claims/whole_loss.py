"""What holds in the scenes of ``parts/whole_loss.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.parts.whole_loss import (
    ADVANTAGES,
    BETA,
    EDGE,
    ENTROPIES,
    EPS,
    NEW_VALUES,
    OLD,
    OTHERS,
    REAL,
    REFERENCE,
    RETURNS,
    VALUES,
)
from tests.lessons.by_hand import all_close, close, log_softmax
from tests.lessons.claims import Claims


def larger_by_hand(n: Numbers) -> bool:
    inside = max(-n["eps"], min(n["eps"], n["value"]))
    plain, limited = ((x - n["target"]) ** 2 / 2 for x in (n["value"], inside))
    slope = 0.0 if limited > plain + EDGE else n["value"] - n["target"]
    outside = abs(n["value"]) > n["eps"] + EDGE
    tie = outside and abs(plain - limited) < 1e-6  # torch shares the slope between equal branches
    return close(n["loss"], max(plain, limited)) and (tie or close(n["slope"], slope))


def entropy_by_hand(n: Numbers) -> bool:
    logs = log_softmax([n["liking"], *OTHERS])
    total = -sum(math.exp(x) * x for x in logs)
    slopes = [n["coef"] * math.exp(x) * (x + total) for x in logs]  # of minus the bonus, along each logit
    return close(n["entropy"], total) and all_close(n["gradient"], slopes)


def loss_by_hand(n: Numbers) -> bool:
    total = 0.0
    for index in range(REAL):
        ratio = math.exp(n["new"][index] - OLD[index])
        advantage = ADVANTAGES[index]
        total += max(-advantage * ratio, -advantage * min(max(ratio, 1 - EPS), 1 + EPS))
        inside = min(max(NEW_VALUES[index], VALUES[index] - EPS), VALUES[index] + EPS)
        total += n["value_coef"] * max((NEW_VALUES[index] - RETURNS[index]) ** 2, (inside - RETURNS[index]) ** 2) / 2
        total -= n["entropy_coef"] * ENTROPIES[index]
        d = n["new"][index] - REFERENCE[index]
        total += BETA * (math.exp(-d) - 1 + d) if n["kl_in_loss"] else 0.0
    return close(n["total"], total / REAL)


def slopes_by_hand(n: Numbers) -> bool:
    """What each token pushes: nothing where clipping decided, and nothing behind the end."""
    policy, critic = [], []
    for index in range(REAL):
        ratio, advantage = math.exp(n["new"][index] - OLD[index]), ADVANTAGES[index]
        silent = ratio > 1 + EPS if advantage > 0 else ratio < 1 - EPS
        d = n["new"][index] - REFERENCE[index]
        policy.append((0.0 if silent else -advantage * ratio) + (BETA * (1 - math.exp(-d)) if n["kl_in_loss"] else 0.0))
        inside = min(max(NEW_VALUES[index], VALUES[index] - EPS), VALUES[index] + EPS)
        error = NEW_VALUES[index] - RETURNS[index]
        critic.append(0.0 if (inside - RETURNS[index]) ** 2 > error**2 + EDGE else n["value_coef"] * error)
    due = [[slope / REAL for slope in slopes] + [0.0] for slopes in (policy, critic)]
    return all_close(n["slopes"], due[0]) and all_close(n["value_slopes"], due[1])


CLAIMS: Claims = {
    "value_clip": {
        "the loss is the larger one, and so is its slope": larger_by_hand,
        "the loss is one of the two, and the smaller one is not larger": lambda n: (
            n["loss"] in (n["plain"], n["limited"]) and n["smaller"] <= n["loss"]
        ),
        "a value that is silent was clipped, or is right": lambda n: n["pulls"] or n["clipped"] or close(n["value"], n["target"], 1e-6),
        "a value that went away from its target is pulled back": lambda n: n["value"] * n["target"] >= 0 or n["pulls"],
    },
    "entropy": {
        "entropy and its slope are those by hand": entropy_by_hand,
        "entropy lies between none and that of equal chances": lambda n: 0 <= n["entropy"] <= n["most"] + EDGE,
        "the bonus is taken off the loss": lambda n: n["term"] <= 0,
    },
    "one_step": {
        "the loss is the sum by hand, over the tokens": loss_by_hand,
        "each token pushes as by hand, and padding does not": slopes_by_hand,
        "the term that is called the largest is": lambda n: all(
            abs(n[name]) <= (abs(n[n["largest"]]) if n["largest"] in n else EDGE) for name in ("policy", "critic", "bonus", "price")
        ),
        "the policy's losses have both signs": lambda n: min(n["policy_losses"]) < 0 < max(n["policy_losses"]),
        "the terms add up": lambda n: close(n["total"], n["policy"] + n["critic"] + n["bonus"] + n["price"], 1e-6),
        "only real tokens are counted": lambda n: n["tokens"] == REAL,
        "the clip fraction counts the silent tokens": lambda n: close(
            n["clipped"],
            sum((r > 1 + EPS and a > 0) or (r < 1 - EPS and a < 0) for r, a in zip(n["ratios"], ADVANTAGES, strict=True)) / REAL,
        ),
    },
}
