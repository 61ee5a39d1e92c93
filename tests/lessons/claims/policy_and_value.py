"""What holds in the scenes of ``pages/policy_and_value.py``, whatever the controls say; by scene."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.pages.policy_and_value import SHOWN
from tests.lessons.claims import Claims


def _surprises_by_hand(n: Numbers) -> bool:
    values, rewards = [*n["values"], 0.0], n["rewards"]
    right = [rewards[t] + n["gamma"] * values[t + 1] - values[t] for t in range(SHOWN)]
    wrong = [rewards[t] + (n["gamma"] - 1) * n["last"] for t in range(SHOWN - 1)] + [rewards[-1] - n["last"]]
    return all(abs(a - b) < 1e-9 for a, b in zip([*right, *wrong], [*n["right"], *n["wrong"]], strict=True))


def _value_pull_by_hand(n: Numbers) -> bool:
    square: float = sum((n["vf_coef"] * error / len(n["errors"])) ** 2 for error in n["errors"]) * sum(w * w for w in n["head"])
    expected = 0.0 if n["detach"] else square**0.5
    return bool(abs(n["value"] - expected) <= 1e-4 * max(1e-3, expected))


CLAIMS: Claims = {
    "value_per_token": {
        "both rows of surprises follow by hand": _surprises_by_hand,
        "with one value for all, only the KL is left of a surprise": lambda n: (
            n["gamma"] == 1 and (n["place"] == 1 or abs(n["wrong_surprise"] - n["rewards"][int(n["place"]) - 2]) < 1e-9)
        ),
    },
    "two_ways": {
        "a head has one weight for each hidden number, and a bias": lambda n: (
            n["head"] == {"world": 160, "gpt2": 768, "large": 1280}[n["model"]] + 1
        ),
        "a trunk of its own is a second pass": lambda n: n["passes"] == (2 if n["separate"] else 1),
        "the second trunk is what makes the difference": lambda n: n["both"][1] - n["both"][0] == n["trunk"],
        "four numbers of four bytes": lambda n: n["per_weight"] == 16,
    },
    "one_trunk": {
        "the two pulls add up": lambda n: n["apart"] < 1e-9,
        "the pull of the value loss follows by hand": _value_pull_by_hand,
        "detached, only the policy pulls": lambda n: not n["detach"] or (n["value"] == 0 and abs(n["together"] - n["policy"]) < 1e-12),
    },
    "where_the_trunk_is": {
        "the trunk is found by the name": lambda n: n["same"],
        "one value for each token": lambda n: n["of_values"] == n["tokens"],
        "a score for each word of the vocabulary": lambda n: n["of_logits"] == n["tokens"] * n["logits"],
    },
    "check_yourself": {
        "the surprise follows by hand": lambda n: abs(n["surprise"] - (n["reward"] + n["gamma"] * n["after"] - n["before"])) < 1e-9,
        "the reward is the score, at the end, less the charge": lambda n: abs(n["reward"] - (n["score"] - n["charge"])) < 1e-9,
    },
}
