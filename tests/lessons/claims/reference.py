"""What holds in the scenes of ``pages/reference.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.small_models import (
    WORDS,
)
from tests.lessons.claims import Claims


def by_hand(logits: list[float], word: str) -> float:
    """The log-probability of a word, for claims."""
    return logits[WORDS.index(word)] - math.log(sum(math.exp(logit) for logit in logits))


CLAIMS: Claims = {
    "off_is_base": {
        "off is the base, logit by logit": lambda n: n["reference_logits"] == n["base_logits"],
        "the policy differs once B has moved": lambda n: (n["apart"] > 0) == (n["moved"] > 0),
        "afterwards the policy is as it was": lambda n: n["after"] == 0,
        "the KL is the policy's log-probability minus the reference's": lambda n: (
            abs(n["kl"] - by_hand(n["policy_logits"], n["word"]) + by_hand(n["base_logits"], n["word"])) < 1e-9
        ),
    },
    "switch": {
        "one adapter is switched off, of two the second is switched on": lambda n: (
            n["case"] == ("own" if n["own"] else "switched" if n["adapters"] == "two" else "off")
        ),
        "the logits are those of TRL's way": lambda n: n["as_trl_apart"] < 1e-12,
        "only a second adapter is not the base": lambda n: n["is_base"] == (n["case"] != "switched"),
        "only TRL's way makes a second adapter learnable": lambda n: n["inside"] == 0 and (n["theirs"] > 0) == (n["case"] == "switched"),
        "afterwards the policy is as it was, and learns": lambda n: n["restored"] and n["policy_learns"] > 0,
    },
    "after_sft": {
        "off is the base after LoRA-SFT": lambda n: n["way"] != "off" or n["reference_is_base"],
        "merging, or a second adapter, starts at zero": lambda n: n["starts_at_zero"] == (n["way"] != "off" or n["sft"] == 0),
        "each token is charged beta times its KL": lambda n: (
            abs(n["charged"] + n["beta"] * (sum(n["logprobs"]) - sum(n["ref_logprobs"]))) < 1e-9
        ),
        "the exact KL is never negative": lambda n: n["exact"] > -1e-12,
        "a value model without adapters learns more": lambda n: 0 < n["policy_learns"] < n["value_learns"],
    },
    "check_yourself": {
        "the KL compares the sampling policy with the reference": lambda n: abs(n[n["answer"]] - (n["old"] - n["ref"])) < 1e-9,
        "the ratio compares the policy with itself": lambda n: abs(n["ratio"] - math.exp(n["new"] - n["old"])) < 1e-9,
    },
}
