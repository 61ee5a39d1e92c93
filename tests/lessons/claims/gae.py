"""What holds in the scenes of ``pages/gae.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math
import statistics

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.pages.gae import EDGE_OF_TOKEN, EPISODES, LITTLE, REAL, STEPS, VALUES, simulated
from tests.lessons.by_hand import advantages as advantages_by_hand
from tests.lessons.by_hand import all_close, close
from tests.lessons.claims import Claims


def simulated_by_hand(n: Numbers) -> tuple[float, float]:
    rewards, seen, _ = simulated(n["blind"], n["noise"], n["seed"])
    firsts = [advantages_by_hand(r, v, 1.0, n["lam"])[0] for r, v in zip(rewards.tolist(), seen.tolist(), strict=True)]
    return statistics.fmean(firsts), statistics.stdev(firsts)


CLAIMS: Claims = {
    "right_to_left": {
        "each advantage is the sum of the surprises to come": lambda n: all_close(
            n["advantages"][:REAL], advantages_by_hand(n["earned"], VALUES, n["gamma"], n["lam"])
        ),
        "a return is the advantage plus the value": lambda n: all_close(
            n["returns"][:REAL], [a + v for a, v in zip(n["advantages"], VALUES, strict=False)]
        ),
        "without whitening, the loss uses them as they are": lambda n: n["used"] == n["advantages"],
        "padding gets nothing": lambda n: n["advantages"][REAL] == n["returns"][REAL] == n["deltas"][REAL] == 0,
        "one value at the last token is another critic": lambda n: all_close(
            n["lonely"][:REAL], advantages_by_hand(n["earned"], [0.0] * (REAL - 1) + VALUES[-1:], n["gamma"], n["lam"])
        ),
        "the three numbers are clearly apart, and one is right": lambda n: (
            min(abs(n[a] - n[b]) for a, b in (("first", "second"), ("first", "third"), ("second", "third"))) >= LITTLE - 1e-9
            and n[n["answer"]] == n["found"]
        ),
    },
    "credit": {
        "credit fades by γλ for each token, and never goes forwards": lambda n: all(
            close(n["shares"][t][k], (n["gamma"] * n["lam"]) ** (k - t) if k >= t else 0.0) for t in range(STEPS) for k in range(STEPS)
        ),
        "a return is what is still to come": lambda n: all_close(
            n["returns"], [n["score"] * n["gamma"] ** (STEPS - 1 - t) for t in range(STEPS)]
        ),
    },
    "bias_and_variance": {
        "mean and spread are those of episodes worked out by hand": lambda n: all_close([n["mean"], n["spread"]], simulated_by_hand(n)),
        "a critic that misses something is wrong by that, on average, and only such a one": lambda n: (
            abs(n["biases"][0] - EDGE_OF_TOKEN * n["blind"]) < 5 * n["noise"] / math.sqrt(EPISODES)
            and (n["critic_is"] == "sees_all") == (n["blind"] == 0)
            and (n["better"] == "critic" or n["blind"] > 0)
        ),
        "what was really earned spreads more than what the critic says": lambda n: n["spreads"][-1] > n["spreads"][0],
    },
    "check_yourself": {
        "the advantages are those by hand": lambda n: all_close(
            n["advantages"], advantages_by_hand([0.0, n["score"]], [n["v_first"], n["v_second"]], n["gamma"], n["lam"])
        ),
        "the three numbers differ": lambda n: len({f"{n[name]:.2f}" for name in ("first", "second", "third")}) == 3,
    },
}
