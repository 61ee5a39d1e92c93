"""What holds in the scenes of ``tour/gae.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import advantages, all_close
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {
        "each advantage is the sum of all surprises to come": lambda n: all_close(
            n["advantages"], advantages(n["rewards"], n["values"], n["gamma"], n["lam"])
        ),
        "the last advantage is the last surprise": lambda n: all_close([n["last"]], [n["last_delta"]]),
    },
}
