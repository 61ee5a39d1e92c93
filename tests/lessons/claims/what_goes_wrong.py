"""What holds in the scenes of ``pages/what_goes_wrong.py``, whatever the controls say; by scene."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.pages.what_goes_wrong import PER_BATCH, Learned
from tests.lessons.claims import Claims


def _sums_by_hand(n: Numbers) -> bool:
    for part in n["parts"].values():
        by_hand = [-n["beta"] * ratio for ratio in part.log_ratios]
        by_hand[-1] += part.first_score
        if any(abs(mine - actual) > 1e-9 for mine, actual in zip(by_hand, part.rewards, strict=True)):
            return False
    return True


def _silent_by_hand(n: Numbers) -> bool:
    last: Learned = n["last"]
    pairs = list(zip(last.ratios, last.advantages, strict=True))
    quiet = sum((a > 0 and ratio > 1 + n["eps"]) or (a < 0 and ratio < 1 - n["eps"]) for ratio, a in pairs)
    return bool(abs(quiet / len(pairs) - n["silent"]) < 1e-9)


CLAIMS: Claims = {
    "two_curves": {
        "the means on record are those of the responses": lambda n: (
            abs(n["of_samples"][0] - n["score"]) < 1e-5 and abs(n["of_samples"][1] - n["gold"]) < 1e-5
        ),
        "choosing by the score loses gold without the penalty": lambda n: n["charged"] or n["lost"] > 0.3,
        "nobody chooses better by the score than by the gold": lambda n: n["lost"] >= 0,
        "the score has risen in both runs": lambda n: n["scores"][-1] > n["first_score"] + 1,
    },
    "price": {
        "every token pays, and the last one earns": _sums_by_hand,
        "what is left is the score less beta times the KL": lambda n: all(
            abs(part.left - (part.score - n["beta"] * part.per_nat)) < 1e-9 for part in n["parts"].values()
        ),
        "the other has the higher score, and has moved further": lambda n: (
            n["hacked_score"] > n["honest_score"] and n["hacked_kl"] > n["honest_kl"]
        ),
        "the held policy wins above the break-even price": lambda n: (
            n["break_even"] > 0 and (n["winner"] == "held") == (n["beta"] > n["break_even"])
        ),
    },
    "more_passes": {
        "silent responses are those beyond the range on the side of their advantage": _silent_by_hand,
        "the recorded run learned well": lambda n: n["run_gained"] > 0.3,
        "each step of the recorded run changed the policy, and clipped a part of its tokens at most": lambda n: (
            0 <= n["clip_low"] <= n["clip_high"] < 1 and 0 < n["approx_low"] < n["approx_high"]
        ),
        "both learn the right thing": lambda n: n["first"] > 0 and n["same"] > 0 and n["fresh"] > 0,
        "the first passes are the same": lambda n: abs(n["curves"][0][PER_BATCH] - n["curves"][1][PER_BATCH]) < 1e-12,
        "later passes over the one batch add something, and fresh ones more": lambda n: (
            n["passes"] == PER_BATCH or 0 < n["added"] < n["fresh"] - n["first"]
        ),
        "fresh batches win when there are several": lambda n: n["passes"] == PER_BATCH or n["fresh"] > n["same"],
    },
    "check_yourself": {
        "the rewards add up to the score less the price": lambda n: abs(sum(n["rewards"]) - (n["score"] - n["beta"] * n["kl"])) < 1e-6
    },
}
