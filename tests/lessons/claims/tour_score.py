"""What holds in the scenes of ``tour/score.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import close
from tests.lessons.claims import Claims

ROUNDING = 1e-4


CLAIMS: Claims = {
    "line": {"the reward model gives the recorded score again": lambda n: close(n["again"], n["score"], ROUNDING)},
}
