"""A stand-in for the process that scores: it does what the prompt says."""

from __future__ import annotations

import sys
import threading
from typing import Any

MESSAGES = (LookupError,)
COMMAND = [sys.executable, "-c", "from rlhf_studio.child_process.serving import serve; serve('tests.ui.score_stand_in')"]


def handler(waits: Any) -> Any:
    return score


def score(request: dict[str, Any], tell: Any, is_cancelled: Any) -> None:
    tell({"event": "progress", "text": "Loading", "fraction": 0.5})
    if request["prompt"] == "hang":
        threading.Event().wait()
    if request["prompt"] == "refuse":
        raise LookupError("no GPU")
    tell({"event": "result", "result": request})
