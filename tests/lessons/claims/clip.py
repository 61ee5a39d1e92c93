"""What holds in the scenes of ``pages/clip.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.pages.clip import EDGE, OLD
from tests.lessons.by_hand import all_close, close, log_softmax
from tests.lessons.claims import Claims


def ratio_by_hand(n: Numbers) -> bool:
    new, old = log_softmax([OLD[0] + n["push"], *OLD[1:]]), log_softmax(OLD)  # without the shift
    rho = math.exp(new[0] - old[0])
    steps = [n["advantage"] * rho * ((index == 0) - math.exp(x)) for index, x in enumerate(new)]
    return close(n["rho"], rho) and all_close(n["steps"], steps)


def slope_by_hand(n: Numbers) -> float:
    far = n["ratio"] > n["high"] + EDGE if n["advantage"] > 0 else n["ratio"] < n["low"] - EDGE
    return 0.0 if far else -n["advantage"] * n["ratio"]


def loss_by_hand(n: Numbers) -> bool:
    within = min(max(n["ratio"], 1 - n["eps"]), 1 + n["eps"])
    return close(n["loss"], max(-n["advantage"] * n["ratio"], -n["advantage"] * within))


CLAIMS: Claims = {
    "ratio": {
        "ratio and gradient are those by hand, whatever is added to all logits": ratio_by_hand,
        "before the first step the ratio is one": lambda n: n["old_against_old"] == 1.0,
        "what one word gains, the others lose": lambda n: abs(sum(n["steps"])) < EDGE,
    },
    "dead_zones": {
        "the loss is the larger of the two": loss_by_hand,
        "a silent token with an advantage has left the range": lambda n: n["pushes"] or n["outside"] or abs(n["advantage"]) < EDGE,
        "a token that has moved against its advantage pushes": lambda n: n["pushes"] or (n["ratio"] - 1) * n["advantage"] >= 0,
        "the slope is that of minus A times the ratio, or 0": lambda n: (
            not n["pushes"] or abs(n["gradient"] + n["advantage"] * n["ratio"]) < 1e-6
        ),
    },
    "check_yourself": {
        "the slope is the one by hand": lambda n: close(n["slope"], slope_by_hand(n), 1e-8),
        "clipping decided the loss of silent tokens alone": lambda n: n["clipped"] == (slope_by_hand(n) == 0),
        "the three numbers differ": lambda n: len({f"{n[name]:.2f}" for name in ("first", "second", "third")}) == 3,
    },
}
