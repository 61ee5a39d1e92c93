"""The process that computes lessons for the app: a JSON line with a request in, a JSON line with the answer out.

Requests, each with a ``number`` that its answer repeats:

- ``{"op": "describe", "lesson"}``: the controls of its scenes, and what each shows at the start. Slow ones show nothing, and
  those for which something must be loaded first do not wait for it: they are to be computed next;
- ``{"op": "compute", "lesson", "scene", "values", "language"}``: what a scene shows;
- ``{"op": "sweep", ..., "control"}``: a list, for each value of a control;
- ``{"op": "draw", "lesson", "scene", "seed", "language"}``: other values, and what the scene shows for them.

An answer is ``{"number", "answer"}`` or ``{"number", "error"}``.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from importlib import import_module
from typing import Any

from rlhf_studio.lessons.answers import NoScene, computed, described, drawn, find, ready, swept
from rlhf_studio.lessons.shelf import NoLesson

Json = dict[str, Any]


def serve() -> int:
    """Answer until standard input closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # from here on, what libraries print goes to the error stream and cannot be taken for an answer
    os.nice(5)  # a run on this machine comes first
    gc.disable()  # the libraries leave many objects that stay: to look through them while they load takes a sixth of the time
    import_module("rlhf_studio.ppo")  # torch, while the reader still reads the first lines
    for line in sys.stdin:
        request = json.loads(line)
        reply = {"number": request.get("number"), **_reply(request)}
        answers.write(json.dumps(reply, allow_nan=False) + "\n")
        answers.flush()
        if not gc.isenabled():  # after the first answer: by then what stays has been loaded
            gc.freeze()
            gc.enable()
    return 0


def _reply(request: Json) -> Json:
    try:
        return {"answer": answer(request)}
    except (NoLesson, NoScene, ValueError) as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - the last line of defence: the page must be told, and the next request be answered
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def answer(request: Json) -> Any:
    """What is asked for. Raises NoLesson, NoScene, and ValueError for values that do not fit."""
    lesson, language, op = str(request.get("lesson")), str(request.get("language", "en")), request.get("op")
    if op == "describe":
        return {"scenes": _beginning(lesson, language)}
    scene, values = str(request.get("scene")), request.get("values")
    if op == "draw":
        values = drawn(lesson, scene, int(request.get("seed", 0)))
        return {"values": values, "shown": computed(lesson, scene, values, language)}
    if not isinstance(values, dict):
        raise ValueError("values must be an object with a value for each control")
    if op == "compute":
        return computed(lesson, scene, values, language)
    if op == "sweep":
        return swept(lesson, scene, str(request.get("control")), values, language)
    raise ValueError(f"op must be describe, compute, sweep or draw, got {op!r}")


def _beginning(lesson: str, language: str) -> Json:
    scenes = described(lesson)
    for name, scene in scenes.items():
        found = find(lesson, name)
        scene["shown"] = None if found.slow or not ready(found) else computed(lesson, name, found.start(), language)
    return scenes
