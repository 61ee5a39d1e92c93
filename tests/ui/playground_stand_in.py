"""A stand-in for the process behind the reward playground: it needs no models, and does what the response says."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MESSAGES = ()
COMMAND = [sys.executable, "-c", "from rlhf_studio.child_process.serving import serve; serve('tests.ui.playground_stand_in')"]


def handler(waits: Any) -> Any:
    return answer


def answer(request: dict[str, Any], tell: Any, is_cancelled: Any) -> None:
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
