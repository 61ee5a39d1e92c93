"""What holds in the scenes of ``parts/beta_dial.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.parts.beta_dial import BETA
from tests.lessons.by_hand import all_close, close, weighed
from tests.lessons.claims import Claims


def weighed_by_hand(n: Numbers) -> bool:
    by_hand = weighed(n["scores"], n["beta"])
    proxy, gold = (math.fsum(w * x for w, x in zip(by_hand, n[name], strict=True)) for name in ("scores", "golds"))
    effective = 1 / math.fsum(w * w for w in by_hand)
    return all_close([n["proxy"], n["gold"], n["effective"]], [proxy, gold, effective], 1e-6)


def kl_by_hand(n: Numbers) -> bool:
    """Of weights w = exp(s/β)/(N m), with m the mean of exp(s/β), the KL to equal ones is Σ w s/β − log m."""
    top = max(n["scores"])
    mean = math.fsum(math.exp((x - top) / n["beta"]) for x in n["scores"]) / len(n["scores"])
    return close(n["kl"], (n["proxy"] - top) / n["beta"] - math.log(mean), 1e-6)


def path_by_hand(n: Numbers) -> bool:
    beta, path = BETA, []
    for kl in n["kl"]:
        off = kl / n["target"] - 1
        beta *= 1 + max(-0.2, min(0.2, off)) * n["batch"] / n["horizon"]
        path.append(beta)
    return all_close(n["path"], path)


def _counted(n: Numbers) -> float:
    """The logarithm of β's change: each step counts by how far it is off, a fifth at most."""
    return math.fsum(math.log1p(max(-0.2, min(0.2, kl / n["target"] - 1)) * n["batch"] / n["horizon"]) for kl in n["kl"])


CLAIMS: Claims = {
    "beta_dial": {
        "each review weighs as the exponential of its score over beta": weighed_by_hand,
        "the KL is the one by hand, and cannot pass the logarithm of the number of reviews": lambda n: (
            kl_by_hand(n) and -1e-9 <= n["kl"] <= n["most"] + 1e-9
        ),
        "a lower price never lowers the score": lambda n: all(
            a["proxy"] >= b["proxy"] - 1e-9 for a, b in zip(n["curve"], n["curve"][1:], strict=False)
        ),
        "here the gold score rises too": lambda n: n["gold"] > n["plain_gold"],
        "no price finds more than the best review": lambda n: n["proxy"] <= n["best"] + 1e-9,
    },
    "open_loop": {
        "every step moves beta as the controller's formula says": path_by_hand,
        "where beta ends is the sum of what the steps count": lambda n: (n["moves"] == "rises") == (_counted(n) > 0),
        "what is shown at the end is not where it began": lambda n: f"{n['to_beta']:.4f}" != f"{n['from_beta']:.4f}",
    },
}
