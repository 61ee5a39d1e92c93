"""What holds in the scenes of ``parts/trl_batch.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "one_batch": {
        "the converted settings make as many steps": lambda n: n["ours"] == n["made"],
        "accumulation swallows minibatches": lambda n: n["made"] == n["epochs"] * max(1, int(n["parts"]) // int(n["accumulation"])),
        "episodes over batch": lambda n: n["steps"] == math.ceil(3840 / n["batch"]),
        "cells are filled as often as named steps are made": lambda n: n["filled"] * n["named"] == n["cells"] * n["made"],
        "the mean over all cells is one only if all are filled": lambda n: (
            abs(n["logged_ratio"] - 1 / min(int(n["parts"]), int(n["accumulation"]))) < 1e-6
        ),
    },
}
