"""What holds in the scenes of ``tour/optimizer.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import close
from tests.lessons.claims import Claims

ROUNDING = 1e-6


CLAIMS: Claims = {
    "line": {
        "the learning rate is that of the schedule": lambda n: close(
            n["rate"], n["first_rate"] * (1 - (n["step"] - 1) / n["steps"]), ROUNDING
        ),
        "the value head begins at zero": lambda n: not n["start"] or n["at_start"] == 0,
    },
}
