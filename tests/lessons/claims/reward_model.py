"""What holds in the scenes of ``pages/reward_model.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers
from tests.lessons.by_hand import advantages as advantages_by_hand
from tests.lessons.claims import Claims


def close(one: float, other: float, size: float = 1e-4) -> bool:
    return abs(one - other) <= size * max(1.0, abs(other))


def earned(n: Numbers) -> list[float]:
    """The rewards of the tokens: nothing, and at the end the score."""
    return [0.0] * (n["count"] - 1) + [n["score"]]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


CLAIMS: Claims = {
    "bradley_terry": {
        "the chance is the sigmoid of the gap": lambda n: close(n["chance"], sigmoid(n["first"] - n["second"])),
        "the loss is minus the log of that chance": lambda n: close(n["loss"], math.log1p(math.exp(n["second"] - n["first"]))),
        "a shift of both changes nothing": lambda n: n["moves"] == "same",
    },
    "new_head": {
        "a margin is weights times the difference of the states": lambda n: close(
            n["first_margin"], math.fsum(x * y for x, y in zip(n["head"], n["state_gap"], strict=True)), 1e-3
        ),
        "a trained head is better than any new one": lambda n: n["trained"] > n["highest"],
        "a head is drawn as wide as one over the root of its size": lambda n: abs(n["spread"] * n["head_numbers"] ** 0.5 - 1) < 0.25,
    },
    "loaded_as": {
        "only the reward model's files have a score head, and none has a value head": lambda n: (
            (n["new"] == "from_files") == (n["way"] == "causal" or (n["way"], n["folder"]) == ("classifier", "reward_model"))
        ),
        "a head is as wide as the world's models, 160": lambda n: (
            n["head_numbers"] in {"causal": (1236 * 160,), "classifier": (160, 320), "policy": (160 + 1,)}[n["way"]]
        ),
    },
    "where_read": {
        "the engine reads the last real token": lambda n: n["trap"] == "pad_is_end" or close(n["truth"], n["engine"]),
        "without padding only a pad token that is the end token does harm": lambda n: (
            n["pads"] > 0 or (n["agrees"] == "equal") == (n["trap"] != "pad_is_end")
        ),
        "with padding each of them reads another number": lambda n: n["pads"] == 0 or n["agrees"] == "differ",
    },
    "value_of_each": {
        "advantages are fading sums of surprises": lambda n: all(
            close(x, y) for x, y in zip(n["advantages"], advantages_by_hand(earned(n), n["values"], 1.0, n["lam"]), strict=True)
        ),
        "with one value for all they are too": lambda n: all(
            close(x, y) for x, y in zip(n["flat"], advantages_by_hand(earned(n), [n["one_value"]] * n["count"], 1.0, n["lam"]), strict=True)
        ),
        "the one value is the mean of all": lambda n: close(n["one_value"], math.fsum(n["values"]) / n["count"]),
        "with lambda 1 each advantage is score less value": lambda n: n["lam"] < 1 or close(n["advantage"], n["score"] - n["value"]),
    },
    "how_sure": {
        "stretching the scores changes no order": lambda n: n["per_token"] != 0 or n["order"] == "same_pairs",
        "how sure it is, is the mean of the larger probability": lambda n: close(
            n["sure"], math.fsum(1 / (1 + math.exp(-abs(margin))) for margin in n["margins"]) / len(n["margins"])
        ),
        "the loss is the mean of log(1 + exp(-gap))": lambda n: close(
            n["loss"], math.fsum(math.log1p(math.exp(-margin)) for margin in n["margins"]) / len(n["margins"])
        ),
        "a bonus for length makes longer responses win more often": lambda n: (
            (n["longer_scored"] - n["longer_before"]) * n["per_token"] >= -1e-9
        ),
    },
    "check_yourself": {
        "only the gap counts, and its scale": lambda n: close(n["after"], sigmoid(n["scale"] * n["gap"])),
        "the order stays": lambda n: n["kept_order"],
    },
}
