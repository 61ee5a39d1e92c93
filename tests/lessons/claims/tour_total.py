"""What holds in the scenes of ``tour/total.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import all_close
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {
        "a token's slope is minus advantage times ratio, or zero": lambda n: all_close(
            n["slopes"], [0.0 if dead else -a * r for a, r, dead in zip(n["advantages"], n["ratio"], n["silent"], strict=True)], 1e-5
        ),
        "the loss is the sum of its parts": lambda n: all_close([n["loss"]], [n["policy"] + n["coefficient"] * n["value"]], 1e-6),
    },
}
