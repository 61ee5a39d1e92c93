"""A stand-in for the process that answers: it needs no models, and does what the prompt says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.ui.fake_run import FakeRun

PROGRAM = """
import json, os, sys, threading
def say(**message): print(json.dumps(message), flush=True)
requests, cancelled, arrived = [], set(), threading.Condition()
def read():
    for line in sys.stdin:
        request = json.loads(line)
        with arrived:
            if request["op"] == "cancel": cancelled.add(request["number"])
            else: requests.append(request)
            arrived.notify_all()
    os._exit(0)
threading.Thread(target=read, daemon=True).start()
def token(place, side):
    likely = [[7, " good", 0.8187], [8, "<img src=x onerror='window.__pwned=1'>", 0.1353]]
    piece = [" good", " film", "<b>x</b>", "\\ufffd", "."][place % 5]
    kl = 0.3 * side * (-1) ** place
    numbers = {"logprob": -0.2 - place / 10, "chance": 0.8 - place / 20, "ref_logprob": -0.5, "ref_chance": 0.6065}
    numbers |= {"kl": kl, "reward": -0.1 * kl, "entropy": 0.4, "value": None}
    return {"id": 7 + place, "piece": piece, **numbers, "top": likely, "ref_top": likely}
while True:
    with arrived:
        while not requests: arrived.wait()
        request = requests.pop(0)
    number, prompt = request["number"], request["prompt"]
    if "die first" in (prompt or ""): os._exit(5)
    say(number=number, event="progress", text="Loading the starting policy", fraction=None)
    for side, asked in enumerate(request["sides"] if prompt is not None else []):
        if "no checkpoint" in prompt and side == 0:
            say(number=number, side=side, event="failed", error="The checkpoint of step 3 is no longer there; choose another one.")
            continue
        say(number=number, side=side, event="begin", prompt=prompt, prompt_tokens=2, notes=[], kl_coef=0.1, kl_estimator="k1")
        for place in range(5):
            say(number=number, side=side, event="token", **token(place, side))
            if "die" in prompt and place == 2: os._exit(9)
            if "hang" in prompt:
                with arrived:
                    while number not in cancelled: arrived.wait()
                break
        if number in cancelled: break
        echo = json.dumps({"asked": request, "pid": os.getpid(), "variables": dict(os.environ)}) if "echo" in prompt else "good film"
        say(number=number, side=side, event="end", response=echo, score=1.5 + side, parts={"sentiment": 1.5 + side}, gold=0.25,
            last_reward=1.5 + 0.97 * side, stopped=True, length=5, kl=0.3 * side, no_score="")
    say(number=number, event="done", cancelled=number in cancelled)
"""
COMMAND = [sys.executable, "-c", PROGRAM]


def run_with_checkpoints(workspace: Path, **options: Any) -> str:
    """A finished run of 20 steps with a checkpoint of the last."""
    run = FakeRun(workspace, steps=20, **options)
    run.load()
    run.run()
    run.step(20)
    run.finish()
    return run.run_id
