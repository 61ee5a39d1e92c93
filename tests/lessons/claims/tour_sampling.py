"""What holds in the scenes of ``tour/sampling.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.claims import Claims

ROUNDING = 1e-3  # between one pass over a whole response and token by token


CLAIMS: Claims = {
    "line": {"the policy says today what it said when it sampled": lambda n: n["largest_difference"] < ROUNDING},
}
