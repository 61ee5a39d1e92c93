"""What holds in the scenes of ``tour/rewards.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import all_close
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {
        "each token pays for its KL and the last one gets the score": lambda n: all_close(
            n["rewards"], [-n["beta"] * x + (n["score"] if index == len(n["kl"]) - 1 else 0.0) for index, x in enumerate(n["kl"])], 1e-6
        )
    },
}
