"""What holds in the scenes of ``pages/rlhf.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers
from tests.lessons.claims import Claims


def _advantage_by_hand(n: Numbers) -> float:
    scores = n["scores"]
    mean = sum(scores) / len(scores)
    variance = sum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
    return float((scores[int(n["response"]) - 1] - mean) / math.sqrt(variance + 1e-8))


CLAIMS: Claims = {
    "three_stages": {
        "the usual probability is the geometric mean": lambda n: (
            abs(n["usual"] - math.prod(math.exp(x) for x in n["logprobs"]) ** (1 / len(n["logprobs"]))) < 1e-9
        ),
        "log-probabilities are not above 0": lambda n: all(x <= 1e-6 for x in n["logprobs"]),
        "the curve ends at this step": lambda n: len(n["golds"]) == n["step"] and n["golds"][-1] == n["after"],
        "the run ends better than it began": lambda n: n["step"] < 4 or n["after"] > n["before"] + 0.3,
    },
    "story": {
        "all probabilities add up to 1": lambda n: abs(n["everything"] - 1) < 1e-4,
        "the policy starts as the reference": lambda n: (
            n["step"] > 0 or all(abs(now - then) < 1e-5 for now, then in zip(n["now"], n["then"], strict=True))
        ),
        "at the end praise is likelier than at the start": lambda n: n["step"] < 10 or n["warm"] > n["warm_then"],
        "what sampling recorded is what the models say": lambda n: abs(n["first_token"][0] - n["first_token"][1]) < 1e-4,
    },
    "only_good": {
        "PPO pushes by the whitened score": lambda n: abs(n["ppo_push"] - _advantage_by_hand(n)) < 1e-9,
        "imitation never pushes down": lambda n: n["imitation_push"] == (1.0 if n["kept"] else 0.0),
        "keeping fewer does not lower the mean": lambda n: n["kept_score"] >= sum(n["scores"]) / len(n["scores"]) - 1e-9,
    },
    "beat_the_judge": {
        "the gold score lies in its range": lambda n: -1 <= n["gold"] <= 1,
        "without the pet words nothing changes": lambda n: n["pets"] or abs(n["judge_change"]) < 1e-5,
        "three masterpieces please the judge": lambda n: n["pets"] < 3 or n["judge_change"] > 0,
    },
    "check_yourself": {
        "the models say again what is on record": lambda n: (
            abs(n["again"][0][0] - n["one_score"]) < 1e-3 and abs(n["again"][1][1] - n["other_gold"]) < 1e-6
        ),
    },
}
