"""What holds in the scenes of ``pages/rewards.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math
import statistics

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.pages.rewards import BATCH, BETA, COLUMNS, EARLIER, IDS, PIECES, PRICES, REAL, UNSEEN, UPDATES
from rlhf_studio.lessons.parts.kl_dice import EDGE
from tests.lessons.by_hand import all_close, close, kl_estimate, log_softmax
from tests.lessons.claims import Claims


def estimates_by_hand(n: Numbers) -> list[float]:
    actual = []
    for index in range(REAL):
        p, q = (log_softmax(n[name][index]) for name in ("policy_logits", "ref_logits"))
        chosen = int(IDS[0, index])
        sampled = n["estimator"] != "full"
        whole = sum(math.exp(a) * (a - b) for a, b in zip(p, q, strict=True))
        actual.append(kl_estimate(p[chosen] - q[chosen], n["estimator"]) if sampled else whole)
    return actual


def tokens_pay(n: Numbers) -> bool:
    prices = [n["beta"] * estimate for estimate in estimates_by_hand(n)]
    due = [-price for price in prices[:-1]] + [n["score"] - prices[-1]]
    return all_close(n["rewards"][:REAL], due)


def _sign(number: float) -> int:
    """Of a number with two decimals."""
    return (number > UNSEEN) - (number < -UNSEEN)


def one_update(n: Numbers) -> bool:
    off = n["kl"] / n["target"] - 1
    counted = 0.2 if off > 0.2 else -0.2 if off < -0.2 else off
    return close(n["change"], counted * n["episodes"] / n["horizon"])


def on_the_scale(n: Numbers) -> bool:
    seen = [*EARLIER, *BATCH, n["outlier"]]
    mean, std = statistics.fmean(seen), statistics.stdev(seen)
    for actual, score in zip(n["scaled"], seen[len(EARLIER) :], strict=True):
        due = {"none": score, "scale": score / std, "normalise": (score - mean) / std}[n["mode"]]
        due = max(-n["clip"], min(n["clip"], due)) if n["clip"] else due
        if not close(actual, due, 1e-8):
            return False
    return True


def others_by_hand(n: Numbers) -> bool:
    """How far two of the other scores lie apart, with the last score in the deviation and without it."""
    without, whole = (statistics.stdev([*EARLIER, *BATCH, *last]) for last in ([], [n["outlier"]]))
    apart = [1.0, 1.0] if n["mode"] == "none" else [1 / without, 1 / whole]
    effect = "undivided" if apart[0] == apart[1] else "shrinks" if apart[1] < apart[0] else "grows"
    return close(n["std_before"], without, 1e-8) and effect == n["scale_effect"] and f"{without:.3f}" != f"{whole:.3f}"


def two_responses(n: Numbers) -> bool:
    plain = [-price for piece, prices in zip(PIECES, PRICES, strict=True) for price in prices[: len(piece)]]
    plain[len(PIECES[0]) - 1] += n["scaled"][0]
    plain[-1] += n["scaled"][1]
    mean, std = statistics.fmean(plain), statistics.stdev(plain)
    due = [(x - mean) / std + mean for x in plain] if n["unit_variance"] else plain
    return all_close(n["plain"], plain) and all_close(n["used"], due, 1e-6)


CLAIMS: Claims = {
    "last_token": {
        "each token pays β times its KL, and the last one gets the score": tokens_pay,
        "what stands behind the end earns nothing": lambda n: n["rewards"][REAL:] == [0.0] * (len(COLUMNS) - REAL),
        "with the sign turned, the price is paid out": lambda n: close(n["total_turned"] - n["score"], n["price"], 1e-8),
        "the turned total is higher, lower or the same, as the text says": lambda n: (
            {1: "paid_out", -1: "taken", 0: "no_price"}[_sign(round(n["total_turned"], 2) - round(n["total"], 2))] == n["turned_means"]
        ),
        "against the policy that sampled there is no price": lambda n: close(n["total_old"], n["score"]),
    },
    "thermostat": {
        "an update counts at most a fifth off the target": one_update,
        "no update changes β by more than the most there is": lambda n: abs(n["change"]) <= n["most"] + EDGE,
        "β follows the KL": lambda n: (n["change"] > 0) == (n["kl"] > n["target"]) and (n["change"] < 0) == (n["kl"] < n["target"]),
        "updates multiply": lambda n: close(n["last"], BETA * (1 + n["change"]) ** UPDATES, 1e-8),
    },
    "scaling": {
        "scores are divided by the deviation of all scores so far, and clipped": on_the_scale,
        "the last score does to the others what the text says": others_by_hand,
        "tokens get the scaled score and their price, and unit variance keeps the mean": two_responses,
        "padding that is whitened too earns the mean less mean over deviation": lambda n: close(
            n["in_padding"], n["mean_plain"] - n["mean_plain"] / statistics.stdev(n["plain"]), 1e-6
        ),
        "whitening moves the mean to zero": lambda n: abs(n["mean_whitened"]) < 1e-6,
    },
    "check_yourself": {
        "the last token earns the score less its price": lambda n: close(
            n["earned"], n["score"] - n["beta"] * kl_estimate(n["policy"][-1] - n["ref"][-1], n["estimator"])
        ),
        "the three numbers differ": lambda n: len({f"{n[name]:.2f}" for name in ("first", "second", "third")}) == 3,
    },
}
