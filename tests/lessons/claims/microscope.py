"""What holds in the scenes of ``parts/microscope.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers
from tests.lessons.by_hand import all_close, close, softmax
from tests.lessons.claims import Claims


def slope_by_hand(n: Numbers) -> bool:
    """Along each logit, minus A times the ratio times (1 for the token, less its probability)."""
    p = softmax(n["logits"])
    due = [-n["advantage"] * ((j == n["token_id"]) - x) for j, x in enumerate(p)]
    return close(n["ratio"], 1.0) and all_close(n["slope"], due, 1e-6)


def rule_by_hand(n: Numbers) -> bool:
    """By the rule, the token gains what it was measured to gain, and the odds of any two others change by their old probabilities."""
    before, _, rule = n["chances"]
    others = sorted((j for j in range(len(before)) if j != n["token_id"]), key=lambda j: -before[j])[:3]
    moved = [math.log(rule[j] / before[j]) for j in (n["token_id"], *others)]
    p = [before[j] for j in (n["token_id"], *others)]
    size = (moved[0] - moved[1]) / (1 - p[0] + p[1])
    due = [(moved[1] - moved[2], size * (p[2] - p[1])), (moved[1] - moved[3], size * (p[3] - p[1]))]
    gain = rule[n["token_id"]] - before[n["token_id"]]
    return close(gain, n["gain"], 1e-6) and all(close(actual, expected, 1e-6) for actual, expected in due)


CLAIMS: Claims = {
    "under_microscope": {
        "the slope along each logit is the rule by hand": slope_by_hand,
        "what the token gains, all others together pay": lambda n: abs(100 * n["gain"] + n["all_others"]) < 1e-7,
        "the token moves the way its advantage asks for": lambda n: n["gain"] * n["advantage"] >= 0,
        "the first step of AdamW moves no weight by more than the learning rate": lambda n: 0 < n["moved"] <= n["rate"] * (1 + 1e-3),
        "the rule for a table is the one by hand": rule_by_hand,
    },
}
