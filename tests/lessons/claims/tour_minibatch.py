"""What holds in the scenes of ``tour/minibatch.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {
        "a pass uses each response once": lambda n: n["each_once"],
        "the minibatch holds the response": lambda n: n["number"] in n["order"],
    },
}
