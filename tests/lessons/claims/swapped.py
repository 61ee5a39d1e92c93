"""What holds in the scenes of ``parts/swapped.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import all_close, close
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "swapped": {
        "what comes before the token does not know of it": lambda n: (
            all_close(n["values_after"][: int(n["place"])], n["values"][: int(n["place"])], 1e-5)
            and all_close(n["logprobs_after"][: int(n["place"]) - 1], n["logprobs"][: int(n["place"]) - 1], 1e-5)
        ),
        "the new token has the chance that the whole distribution gives it": lambda n: close(
            n["logprobs_after"][int(n["place"]) - 1], n["expected"], 1e-4
        ),
        "as it was written, values and score are those on record": lambda n: (
            all_close(n["values"][: len(n["on_record"])], n["on_record"], 1e-3) and close(n["score"], n["recorded_score"], 1e-3)
        ),
    },
}
