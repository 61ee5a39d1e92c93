"""A stand-in for the process behind the reward playground: it needs no models, and does what the response says."""

from __future__ import annotations

import sys

PROGRAM = """
import json, os, sys
def say(**message): print(json.dumps(message), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["op"] == "cancel": continue
    number, response = request["number"], request["response"]
    say(number=number, event="progress", text="Loading the reward model", fraction=None)
    say(number=number, event="model", reads_left=True, head={"score.weight": [1, 4]}, device="cpu", dtype="float32", parameters=9)
    if response is not None:
        if "die" in response: os._exit(9)
        if "echo" in response:
            say(number=number, event="failed", error=json.dumps(request))
        elif "both ways" in response:
            say(number=number, event="scored", score=0.5, ids=[1, 2], pieces=["a", "b"], first=1,
                prefixes=None, scored=None, cut=0, notes=["No."])
        else:
            pieces = ["A", " film", " <b>good</b>", " film", "."]
            say(number=number, event="scored", score=0.9, ids=[3, 4, 5, 6, 7], pieces=pieces, first=2,
                prefixes=[0.0, 0.1, 1.1, 0.6, 0.9], scored=4, cut=0, notes=["A note."])
            say(number=number, event="trying", done=3, of=3)
            words = [{"start": 1, "end": 5, "text": "good", "without": -0.25, "with": [0.5 for _ in request["candidates"]]},
                     {"start": 6, "end": 10, "text": "film", "without": 0.75, "with": [None for _ in request["candidates"]]}]
            say(number=number, event="words", words=words, left=2)
    say(number=number, event="done", cancelled=False)
"""
COMMAND = [sys.executable, "-c", PROGRAM]
