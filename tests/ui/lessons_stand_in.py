"""A stand-in for the process that computes lessons. It counts its questions."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

MESSAGES = (LookupError,)
COMMAND = [sys.executable, "-c", "from rlhf_studio.child_process.serving import serve; serve('tests.ui.lessons_stand_in')"]


def handler(waits: Any) -> Any:
    count = 0

    def compute(request: dict[str, Any], tell: Any, is_cancelled: Any) -> None:
        nonlocal count
        count += 1
        match request.get("scene"):
            case "dies":
                os._exit(3)
            case "slow":
                threading.Event().wait(0.2)
            case "unknown":
                raise LookupError("no such scene")
        tell({"event": "answer", "answer": {"asked": count, "scene": request.get("scene")}})

    return compute
