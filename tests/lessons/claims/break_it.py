"""What the texts of "Break it on purpose" say of their two runs; by experiment."""

from __future__ import annotations

from rlhf_studio.lessons.faults.experiment import WHICH
from rlhf_studio.lessons.kit import Numbers
from tests.lessons.claims import Claims


def both_rise(n: Numbers) -> bool:
    return bool(min(n[f"gold_{which}"] - n[f"gold_{which}_start"] for which in WHICH) > 0.3)


CLAIMS: Claims = {
    "no_kl": {
        "the reward model likes the run without the penalty more": lambda n: n["score_change"] > 0.2,
        "the hidden gold score ends lower": lambda n: n["gold_change"] < -0.5,
        "the KL grows at least five times as large": lambda n: n["kl_second"] > 5 * n["kl_first"],
    },
    "no_whitening": {
        "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
        "the gradient is smaller": lambda n: n["gradient_second"] < 0.6 * n["gradient_first"],
    },
    "temperature": {
        "the KL starts at 0 only as it should be": lambda n: abs(n["kl_first_start"]) < 0.01 and abs(n["kl_second_start"]) > 0.3,
        "the ratio is off before the first update": lambda n: n["first_ratio_first_start"] < 1e-3 and n["first_ratio_second_start"] > 0.1,
        "many more tokens are clipped": lambda n: n["clip_second"] > 5 * n["clip_first"],
        "the KL ends higher": lambda n: n["kl_change"] > 1,
        "the gold score rises in both runs": both_rise,
    },
    "dropout": {
        "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
        "the ratio is off before the first update": lambda n: n["first_ratio_first_start"] < 1e-3 and n["first_ratio_second_start"] > 0.1,
        "many more tokens are clipped": lambda n: n["clip_second"] > 5 * n["clip_first"],
    },
    "pad_is_end": {
        "the same texts get other scores": lambda n: abs(n["score_second_start"] - n["score_first_start"]) > 0.3,
        "the score ends lower": lambda n: n["score_change"] < -0.3,
        "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
    },
    "learning_rate": {
        "the gold score ends far lower": lambda n: n["gold_change"] < -0.5,
        "the first update moves the policy a hundred times as far": lambda n: n["moved_second_start"] > 100 * n["moved_first_start"],
    },
    "epochs": {
        "the reward model likes the run with eight epochs more": lambda n: n["score_change"] > 0.2,
        "the KL ends at least twice as large": lambda n: n["kl_second"] > 2 * n["kl_first"],
        "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
        "with one epoch hardly a token is clipped": lambda n: n["clip_first_largest"] < 0.01,
    },
    "critic": {
        "all values stay 0": lambda n: n["value_second_largest"] == 0,
        "the critic explains nothing": lambda n: n["explained_first"] > 0 > n["explained_second"],
        "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
    },
    "reward_token": {
        "the gold score ends lower": lambda n: n["gold_change"] < -0.2,
        "the score rises all the same": lambda n: n["score_second"] > n["score_second_start"] + 0.2,
        "the critic expects less": lambda n: n["value_second"] < 0.5 * n["value_first"],
    },
}
