"""What holds in the scenes of ``tour/value_loss.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import close, half_square
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {"without a clip it is half the mean squared error": lambda n: n["clips"] or close(n["after"], half_square(n["errors"]), 1e-6)},
}
