"""What holds in the scenes of ``pages/one_sample.py``, whatever the controls say; by scene."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers
from tests.lessons.by_hand import advantages as advantages_by_hand
from tests.lessons.by_hand import all_close, close, kl_estimate
from tests.lessons.claims import Claims


def explained_by_hand(n: Numbers) -> float:
    middle = sum(n["all_returns"]) / len(n["all_returns"])
    wrong = sum((value - one) ** 2 for value, one in zip(n["all_values"], n["all_returns"], strict=True))
    of_mean = sum((one - middle) ** 2 for one in n["all_returns"])
    return float(1 - wrong / of_mean)


CLAIMS: Claims = {
    "written": {"a probability is at most one": lambda n: max(n["logprobs"]) <= 1e-6 and n["count"] == len(n["pieces"])},
    "beside": {"the factor is that of the chances": lambda n: close(n["times"] * n["chance_before"], n["chance"], 1e-9)},
    "kl": {
        "the estimate of each token, by hand": lambda n: (
            n["estimator"] == "full" or all_close(n["kl"], [kl_estimate(d, n["estimator"]) for d in n["differences"]], 1e-6)
        ),
        "the run's own estimator gives what it recorded": lambda n: not n["as_recorded"] or all_close(n["kl"], n["before"]),
    },
    "rewarded": {
        "the rewards are the score less the price": lambda n: close(n["total"] * n["divisor"], n["score"] - n["price"], 1e-6),
        "only the last token gets the score": lambda n: all_close(
            [value * n["divisor"] for value in n["rewards"]],
            [*(-n["beta"] * value for value in n["kl"][:-1]), n["score"] - n["beta"] * n["kl"][-1]],
            1e-6,
        ),
        "the run's own setting and score give what it recorded": lambda n: not n["as_recorded"] or n["differs"] == 0,
    },
    "valued": {"explained variance by hand": lambda n: close(n["explained"], explained_by_hand(n), 1e-6)},
    "credited": {
        "GAE by hand": lambda n: all_close(n["now"], advantages_by_hand(n["rewards"], n["values"], n["gamma"], n["lam"]), 1e-6),
        "the run's own settings give what it learned from": lambda n: not n["as_recorded"] or all_close(n["now"], n["before"], 1e-9),
    },
    "whitened": {
        "less the mean, over the deviation": lambda n: all_close(
            n["used"], [(value - n["mean"]) / n["deviation"] if n["whitening"] else value for value in n["plain"]], 1e-5
        ),
        "the run's own setting and score give what it used": lambda n: not n["as_recorded"] or n["differs"] + n["others"] == 0,
    },
}
