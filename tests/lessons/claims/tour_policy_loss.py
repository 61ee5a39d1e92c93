"""What holds in the scenes of ``tour/policy_loss.py``, whatever the controls say; by scene."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers
from tests.lessons.by_hand import all_close
from tests.lessons.claims import Claims


def larger_branches(n: Numbers) -> list[float]:
    low, high = 1 - n["eps"], 1 + n["eps"]
    return [max(-a * r, -a * min(max(r, low), high)) for a, r in zip(n["advantages"], n["ratio"], strict=True)]


CLAIMS: Claims = {
    "line": {
        "the loss is the larger of the two branches": lambda n: all_close(n["loss"], larger_branches(n), 1e-5),
        "the ratio is the exponential of the difference": lambda n: all_close(n["ratio"], n["exponentials"], 1e-5),
        "a silent token has left the range": lambda n: n["silent"] <= n["outside"],
    },
}
