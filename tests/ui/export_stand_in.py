"""A stand-in for the process that makes exports: CSV tables fail, JSON Lines hang, and the rest is the request itself."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

MESSAGES = (OSError,)
COMMAND = [sys.executable, "-c", "from rlhf_studio.child_process.serving import serve; serve('tests.ui.export_stand_in')"]


def handler(waits: Any) -> Any:
    return make


def make(request: dict[str, Any], tell: Any, is_cancelled: Any) -> None:
    if request["what"] == "csv":
        raise OSError("The disk is full.")
    if request["what"] == "jsonl":
        tell({"event": "progress", "text": "Waiting", "fraction": None})
        threading.Event().wait()
    target = Path(request["target"])
    target.write_text(json.dumps({"op": None, **{name: value for name, value in request.items() if name != "number"}}))
    tell({"event": "result", "files": [target.name], "address": ""})
