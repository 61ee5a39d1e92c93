"""A stand-in for the process that scores: a response by its length; a prompt that says hang is never answered."""

from __future__ import annotations

import sys
import threading
from typing import Any

MESSAGES = ()
COMMAND = [sys.executable, "-c", "from rlhf_studio.child_process.serving import serve; serve('tests.browser.scorer')"]


def handler(waits: Any) -> Any:
    return score


def score(request: dict[str, Any], tell: Any, is_cancelled: Any) -> None:
    tell({"event": "progress", "text": "Loading the reward model bundled/world-reward", "fraction": 0.25})
    if "hang" in request["prompt"]:
        threading.Event().wait()
    rows = [_row(component, request["response"]) for component in request["config"]["reward"]["components"]]
    total = None if any("error" in row for row in rows) else sum(row["weighted"] for row in rows)
    notes = [f"Reference: {request['reference']}"]
    tell({"event": "result", "result": {"components": rows, "sum": total, "final": total, "tokens": 3, "notes": notes}})


def _row(component: dict[str, Any], text: str) -> dict[str, Any]:
    if component["kind"] == "http":
        cause = {"error": "it answered with status 503", "field": "reward.components.1.server"}
        return {"name": "http", "kind": "http", "weight": 1.0, **cause}
    raw, weight = float(len(text)), component["weight"]
    members = {"<b>one</b>": raw - 1} if component["kind"] == "reward_model" else {}
    own = {"name": component["name"] or component["kind"], "kind": "x", "weight": weight}
    return {**own, "raw": raw, "weighted": raw * weight, "members": members, "texts": []}
