"""What holds in the scenes of ``pages/beyond.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.pages.beyond import GROUPS, KL, VALUES
from tests.lessons.by_hand import advantages as advantages_by_hand
from tests.lessons.by_hand import all_close, close
from tests.lessons.claims import Claims

OPTIONS = ("option_1", "option_2", "option_3")


def grpo_by_hand(scores: list[float]) -> list[float]:
    mean = sum(scores) / len(scores)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in scores) / (len(scores) - 1))
    return [(value - mean) / (deviation + 1e-4) for value in scores]


def rewards_by_hand(score: float, beta: float) -> list[float]:
    """Minus the price of each token's KL; the score comes on top of the last one."""
    return [*(-beta * value for value in KL[:-1]), score - beta * KL[-1]]


CLAIMS: Claims = {
    "compared": {
        "RLOO is what it earned less the others' mean": lambda n: all_close(
            n["rloo"], [value - (sum(n["earned"]) - value) / 3 for value in n["earned"]]
        ),
        "the KL is paid out of what RLOO compares": lambda n: close(n["own"], n["score"] - n["beta"] * sum(KL)),
        "GRPO counts deviations of the scores": lambda n: all_close(n["grpo"], grpo_by_hand(n["scores"])),
        "padding gets none": lambda n: not any(n["behind"]),
        "a group's advantages add up to nothing": lambda n: abs(n["total"]) < 1e-9 and abs(sum(n["grpo"])) < 1e-9,
    },
    "per_token": {
        "GAE from right to left": lambda n: all_close(
            n["gae"], advantages_by_hand(rewards_by_hand(n["score"], n["beta"]), VALUES, 1.0, n["lam"])
        ),
        "a group has one number for a response": lambda n: len(set(n["rloo"])) == 1 and len(set(n["grpo"])) == 1,
    },
    "agreeing": {
        "as often as the formula says": lambda n: (
            abs(n["silent"] - n["expected"]) <= 5 * math.sqrt(n["expected"] * (1 - n["expected"]) / GROUPS) + 1e-9
        )
    },
    "preferred": {
        "minus the logarithm of a sigmoid": lambda n: close(n["loss"], math.log1p(math.exp(-n["margin"])), 1e-5),
        "only the difference counts": lambda n: close(n["loss"], n["both_down"], 1e-5),
        "it pulls less, the further the chosen one is ahead": lambda n: abs(n["pull"] - n["beta"] / (1 + math.exp(n["margin"]))) < 1e-3,
    },
    "check_yourself": {
        "its score less the mean of the other two": lambda n: close(n["right"], n["first"] - (n["second"] + n["third"]) / 2),
        "the three numbers differ as shown, or are all zero": lambda n: (
            len({f"{n[name]:+.2f}" for name in OPTIONS}) == 3
            if n["answer"] != "all_same"
            else n["right"] == 0 and not any(n[name] for name in OPTIONS)
        ),
    },
}
