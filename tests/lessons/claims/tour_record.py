"""What holds in the scenes of ``tour/record.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.by_hand import close
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "line": {"the logged KL follows from the record": lambda n: close(n["logged"], n["per_response"], 1e-4)},
}
