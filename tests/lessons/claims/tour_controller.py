"""What holds in the scenes of ``tour/controller.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import close
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {
        "the coefficient moves by the clipped error": lambda n: close(
            n["after"], n["before"] * (1 + min(max(n["kl"] / n["target"] - 1, -0.2), 0.2) * n["episodes"] / n["horizon"])
        )
    },
}
