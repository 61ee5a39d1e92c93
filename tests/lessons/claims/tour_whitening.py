"""What holds in the scenes of ``tour/whitening.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import all_close
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {"plain Python gives the same": lambda n: all_close(n["after"], [(x - n["mean"]) / n["deviation"] for x in n["before"]], 1e-5)},
}
