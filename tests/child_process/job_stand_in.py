"""What a child process is given to work on in tests: it does what the request says."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

MESSAGES = (LookupError,)
COMMAND = [sys.executable, "-c", "from rlhf_studio.child_process.serving import serve; serve('tests.child_process.job_stand_in')"]


def handler(waits: Any) -> Any:
    return work


def work(request: dict[str, Any], tell: Any, is_cancelled: Any) -> None:
    tell({"event": "progress", "text": "Begun", "fraction": 0.5})
    match request["do"]:
        case "die":
            os._exit(9)
        case "hang":
            while not is_cancelled():
                threading.Event().wait(0.01)
        case "never stop":
            threading.Event().wait()
        case "garbage":
            os.write(3, b"garbage\n")
        case "refuse":
            raise LookupError("There is none.")
        case "fail":
            raise ZeroDivisionError("by zero")
        case "look":
            print("a library prints this")
            tell({"event": "result", "pid": os.getpid(), "variables": dict(os.environ), "request": request})
