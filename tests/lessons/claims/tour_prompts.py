"""What holds in the scenes of ``tour/prompts.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {
        "the real tokens stand at the end of the row": lambda n: n["real"] == [0] * n["padding"] + [1] * n["tokens"],
        "some prompt fills the width": lambda n: n["tokens"] <= n["width"],
    },
}
