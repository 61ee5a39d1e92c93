"""What holds in the scenes of ``tour/reference.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import all_close
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {"by k1 the KL of a token is the difference of its log-probabilities": lambda n: all_close(n["kl"], n["differences"])},
}
