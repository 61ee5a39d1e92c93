"""What holds in the scenes of ``parts/dice.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.parts.dice import STATE, SWAPPED, THROWS, WRITTEN
from tests.lessons.by_hand import all_close, close, mean_and_error
from tests.lessons.claims import Claims


def means_by_hand(n: Numbers) -> bool:
    actual = [mean_and_error(n["found"][name].returns) for name in (STATE, WRITTEN, SWAPPED)]
    names = (STATE, WRITTEN, SWAPPED)
    means, errors = ([n[which][name] for name in names] for which in ("means", "errors"))
    worth = math.sqrt(actual[0][1] ** 2 + actual[1][1] ** 2)
    right = all_close(means, [mean for mean, _ in actual]) and all_close(errors, [error for _, error in actual])
    return right and close(n["worth"], actual[1][0] - actual[0][0]) and close(n["worth_error"], worth)


def earned_by_hand(n: Numbers) -> bool:
    return all(
        all_close(each.returns, [score - n["beta"] * math.fsum(row) for score, row in zip(each.scores, each.log_ratios, strict=True)], 1e-6)
        and len(each.returns) == THROWS
        for each in n["found"].values()
    )


CLAIMS: Claims = {
    "dice": {
        "means and standard errors are those by hand": means_by_hand,
        "an ending earns its score less the price of its KL": earned_by_hand,
    },
}
