"""A stand-in for the process that scores texts: it needs no models.

Rewards score a response by its length, and do what the prompt says; the playground's model does what the response says.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

MESSAGES = (LookupError,)
COMMAND = [sys.executable, "-c", "from rlhf_studio.child_process.serving import serve; serve('tests.ui.scoring_stand_in')"]


def handler(waits: Any) -> Any:
    kinds = {"rewards": score, "spread": spread}
    return lambda request, tell, is_cancelled: kinds.get(request["op"], answer)(request, tell, is_cancelled)


def spread(request: dict[str, Any], tell: Any, is_cancelled: Any) -> None:
    rows = [{"prompt": f"prompt {row}", "response": f"<b>answer</b> {row}", "score": float(row)} for row in range(8)]
    said = {
        "sentence": "Scores of the model's own answers.",
        "verdict": "The scores differ.",
        "notes": [],
    }
    tell({"event": "result", "result": {"mean": 3.5, "std": 2.45, "least": 0.0, "most": 7.0, "rows": rows, **said, "request": request}})


def score(request: dict[str, Any], tell: Any, is_cancelled: Any) -> None:
    tell({"event": "progress", "text": "Loading the reward model bundled/world-reward", "fraction": 0.25})
    while "hang" in request["prompt"] and not is_cancelled():
        threading.Event().wait(0.01)
    if is_cancelled():
        return
    if "refuse" in request["prompt"]:
        raise LookupError("no GPU")
    rows = [_row(component, request["response"]) for component in request["config"]["reward"]["components"]]
    total = None if any("error" in row for row in rows) else sum(row["weighted"] for row in rows)
    notes = [f"Reference: {request['reference']}"]
    scores = {"components": rows, "sum": total, "final": total, "tokens": 3, "notes": notes}
    tell({"event": "result", "result": {**scores, "request": request}})


def _row(component: dict[str, Any], text: str) -> dict[str, Any]:
    if component["kind"] == "http":
        cause = {"error": "it answered with status 503", "field": "reward.components.1.server"}
        return {"name": "http", "kind": "http", "weight": 1.0, **cause}
    raw, weight = float(len(text)), component["weight"]
    members = {"<b>one</b>": raw - 1} if component["kind"] == "reward_model" else {}
    own = {"name": component["name"] or component["kind"], "kind": "x", "weight": weight}
    return {**own, "raw": raw, "weighted": raw * weight, "members": members, "texts": []}


def answer(request: dict[str, Any], tell: Any, is_cancelled: Any = None) -> None:
    response, candidates = request["response"], request["candidates"]
    tell({"event": "progress", "text": "Loading the reward model", "fraction": None})
    facts = {"reads_left": True, "head": {"score.weight": [1, 4]}, "device": "cpu", "dtype": "float32", "parameters": 9}
    tell({"event": "model", **facts})
    if response is None:
        return
    if "die" in response:
        os._exit(9)
    if "echo" in response:
        tell({"event": "failed", "error": json.dumps(request)})
    elif "both ways" in response:
        without = {"prefixes": None, "scored": None, "cut": 0, "notes": ["No."]}
        tell({"event": "scored", "score": 0.5, "ids": [1, 2], "pieces": ["a", "b"], "first": 1, **without})
    else:
        pieces = ["A", " film", " <b>good</b>", " film", "."]
        prefixes = {"prefixes": [0.0, 0.1, 1.1, 0.6, 0.9], "scored": 4, "cut": 0, "notes": ["A note."]}
        tell({"event": "scored", "score": 0.9, "ids": [3, 4, 5, 6, 7], "pieces": pieces, "first": 2, **prefixes})
        tell({"event": "trying", "done": 3, "of": 3})
        words = [
            {"start": 1, "end": 5, "text": "good", "without": -0.25, "with": [0.5 for _ in candidates]},
            {"start": 6, "end": 10, "text": "film", "without": 0.75, "with": [None for _ in candidates]},
        ]
        tell({"event": "words", "words": words, "left": 2})
