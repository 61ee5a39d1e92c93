"""What holds in the scenes of ``tour/pooling.py``, whatever the controls say; by scene."""

from __future__ import annotations

from rlhf_studio.lessons.tour.line import GAP
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {
        "the real end is found unless it looks like padding": lambda n: n["end_is_pad"] or n["is_last"],
        "what is scored is no padding": lambda n: n["taken"] != GAP or n["end_is_pad"],
    },
}
