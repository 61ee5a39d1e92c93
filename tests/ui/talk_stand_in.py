"""A stand-in for the process that answers: it needs no models, and does what the prompt says."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

MESSAGES = ()
COMMAND = [sys.executable, "-c", "from rlhf_studio.child_process.serving import serve; serve('tests.ui.talk_stand_in')"]


def handler(waits: Any) -> Any:
    return answer


def answer(request: dict[str, Any], tell: Any, is_cancelled: Any) -> None:
    prompt = request["prompt"]
    if "die first" in (prompt or ""):
        os._exit(5)
    tell({"event": "progress", "text": "Loading the starting policy", "fraction": None})
    for side, policy in enumerate(request["sides"] if prompt is not None else []):
        if "no checkpoint" in prompt and side == 0:
            tell({"event": "failed", "side": side, "error": "The checkpoint of step 3 is no longer there; choose another one."})
            continue
        begin = {"prompt": prompt, "prompt_tokens": 2, "notes": [], "kl_coef": 0.1, "kl_estimator": "k1"}
        tell({"event": "begin", "side": side, **begin})
        for number in range(5):
            tell({"event": "token", "side": side, **_token(number, side)})
            if "die" in prompt and number == 2:
                os._exit(9)
            while "hang" in prompt and not is_cancelled():
                threading.Event().wait(0.01)
            if is_cancelled():
                return
        echo = json.dumps({"asked": policy, "pid": os.getpid(), "variables": dict(os.environ), "request": request})
        numbers = {"score": 1.5 + side, "parts": {"sentiment": 1.5 + side}, "gold": 0.25, "last_reward": 1.5 + 0.97 * side}
        rest = {"stopped": True, "length": 5, "kl": 0.3 * side, "no_score": ""}
        tell({"event": "end", "side": side, "response": echo if "echo" in prompt else "good film", **numbers, **rest})


def _token(number: int, side: int) -> dict[str, Any]:
    likely = [[7, " good", 0.8187], [8, "<img src=x onerror='window.__pwned=1'>", 0.1353]]
    kl = 0.3 * side * (-1) ** number
    numbers = {"logprob": -0.2 - number / 10, "chance": 0.8 - number / 20, "ref_logprob": -0.5, "ref_chance": 0.6065}
    numbers |= {"kl": kl, "reward": -0.1 * kl, "entropy": 0.4}
    piece = [" good", " film", "<b>x</b>", "\ufffd", "."][number]
    return {"id": 7 + number, "piece": piece, **numbers, "value": None, "top": likely, "ref_top": likely}
