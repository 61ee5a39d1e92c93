"""What holds in the scenes of ``pages/sampling.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.pages.sampling import DRAWS, EDGE
from tests.lessons.claims import Claims


def close(one: float, other: float, size: float = 1e-5) -> bool:
    return abs(one - other) <= size * max(1.0, abs(other))


def kept_by_hand(logits: list[float], top_k: int, top_p: float) -> dict[int, float]:
    """Token and probability of what top-k and top-p leave, in plain Python."""
    high = max(logits)
    weights = sorted(((math.exp(x - high), index) for index, x in enumerate(logits)), reverse=True)[: top_k or len(logits)]
    total, actual, before = math.fsum(weight for weight, _ in weights), dict[int, float](), 0.0
    for weight, index in weights:
        if top_p < 1 and before >= top_p:
            break
        actual[index] = weight / total
        before += weight / total
    left = math.fsum(actual.values())
    return {index: share / left for index, share in actual.items()}


def one_logit_by_hand(logits: list[float], change: float, top_k: int) -> tuple[float, float]:
    """Exact KL and the mean of k1 over a truncated draw, when the largest logit has changed.

    With Z = 1 + p (exp(change) - 1), every log-ratio is minus log Z, and that of the changed token is larger by the change.
    """
    high = max(logits)
    total = math.fsum(math.exp(x - high) for x in logits)
    z = 1 + (math.exp(change) - 1) / total
    new = math.exp(change) / (total * z)
    others = sorted((math.exp(x - high) / (total * z) for index, x in enumerate(logits) if index != logits.index(high)), reverse=True)
    if not top_k:
        return new * change - math.log(z), new * change - math.log(z)
    is_kept = sum(share > new for share in others) < top_k
    kept = (new if is_kept else 0.0) + math.fsum(others[: top_k - is_kept])
    return new * change - math.log(z), (new / kept if is_kept else 0.0) * change - math.log(z)


def hand_ratio(logits: list[float], temperature: float, scored: float) -> float:
    """Probability of the likeliest token at one temperature over that at another, in plain Python."""
    high = max(logits)
    sums = [math.fsum(math.exp((x - high) / t) for x in logits) for t in (temperature, scored)]
    return sums[0] / sums[1]


def kept(n: Numbers) -> dict[int, float]:
    return kept_by_hand(n["logits"], int(n["top_k"]), n["top_p"])


def at_temperature(n: Numbers, top_k: int) -> tuple[float, float]:
    return one_logit_by_hand([x / n["temperature"] for x in n["logits"]], n["change"] / n["temperature"], top_k)


CLAIMS: Claims = {
    "temperature": {
        "the probabilities add up to 1": lambda n: close(n["sum_here"], 1),
        "the odds are exp(gap of the logits / temperature)": lambda n: close(n["odds"], math.exp(n["logit_gap"] / n["temperature"])),
        "powers alone add up to 1 at temperature 1 only": lambda n: (abs(n["sum_powers"] - 1) > EDGE) == (n["temperature"] != 1),
        "a lower temperature has a lower entropy": lambda n: (n["entropy"] - n["entropy_one"]) * (n["temperature"] - 1) >= 0,
    },
    "truncation": {
        "only what is kept is drawn": lambda n: set(n["drawn"]) <= set(kept(n)) and n["count"] == len(kept(n)),
        "the chances are those of the kept tokens alone": lambda n: close(n["chance"], max(kept(n).values())),
        "the draw follows the chances": lambda n: abs(n["drawn_share"] - n["chance"]) <= 1 / DRAWS + 1e-9,
        "what is stored is the probability before truncation": lambda n: close(n["stored"], n["scored"]),
        "the gap is minus the log of the kept share": lambda n: close(n["gap"], -math.log(n["kept"])),
    },
    "truncated_kl": {
        "the exact KL is that of one changed logit": lambda n: close(
            n["exact"], one_logit_by_hand(n["logits"], n["change"], int(n["top_k"]))[0]
        ),
        "what is measured is k1 over the kept tokens": lambda n: close(
            n["measured"], one_logit_by_hand(n["logits"], n["change"], int(n["top_k"]))[1]
        ),
        "the exact KL is never negative": lambda n: n["exact"] > -1e-9,
        "without truncation what is measured is exact": lambda n: n["top_k"] > 0 or close(n["measured"], n["exact"]),
    },
    "two_temperatures": {
        "the first ratio is that of two temperatures": lambda n: close(
            n["ratio"], hand_ratio(n["changed_logits"], n["temperature"], n["scored"])
        ),
        "at one temperature the ratio is 1 and the KL exact": lambda n: (
            n["temperature"] != n["scored"] or (close(n["ratio"], 1) and close(n["both_wrong"], n["exact"]))
        ),
        "two temperatures give equal models a KL": lambda n: (n["mixed_equal"] > EDGE) == (n["temperature"] != n["scored"]),
        "the exact KL is that of one changed logit at this temperature": lambda n: close(n["exact"], at_temperature(n, 0)[0]),
    },
    "check_yourself": {
        "all tokens at one temperature measure the real KL": lambda n: (
            n["truncate"] or (n["scored_at_one"] and n["temperature"] != 1) or n["verdict"] == "right"
        ),
        "the real KL is that of one changed logit": lambda n: close(n["exact"], at_temperature(n, 3 if n["truncate"] else 0)[0]),
        "the recorded KL is k1 over the kept tokens": lambda n: (
            n["scored"] != n["temperature"] or close(n["measured"], at_temperature(n, 3 if n["truncate"] else 0)[1])
        ),
    },
}
