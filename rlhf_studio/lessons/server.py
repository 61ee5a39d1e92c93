"""The process that computes lessons for the app: a JSON line with a request in, a JSON line with the answer out.

Requests, each with a ``number`` that its answer repeats:

- ``{"op": "describe", "lesson", "language"}``: the controls of its scenes, and what each shows at the start. Slow ones show nothing, and
  those for which something must be loaded first do not wait for it: they are to be computed next. ``values`` may hold those that the
  scenes share;
- ``{"op": "compute", "lesson", "scene", "values", "language"}``: what a scene shows;
- ``{"op": "sweep", ..., "control"}``: a list, for each value of a control;
- ``{"op": "draw", "lesson", "scene", "seed", "language"}``: other values, and what the scene shows for them;
- ``{"op": "sheet", "lessons", "each", "seed", "with_answers", "language"}``: questions of several lessons, see :mod:`.teaching.sheets`;
- ``{"op": "opening", "lesson", "seed", "language"}``: a question from two lessons before this one;
- ``{"op": "asked", "lesson", "scene", "seed", "language"}``: a scene's question with other numbers.

Each may name a run of a workspace: ``folder``, and ``as_of``, a text that changes whenever the run does. Without them the scenes show the
bundled run.

An answer is ``{"number", "answer"}`` or ``{"number", "error"}``.
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import traceback
from importlib import import_module
from typing import Any

from rlhf_studio.lessons.answers import Asked, NoScene, beginning, computed, drawn, swept
from rlhf_studio.lessons.kit import CannotAsk
from rlhf_studio.lessons.shelf import NoLesson
from rlhf_studio.lessons.teaching.questions import question_of
from rlhf_studio.lessons.teaching.sheets import asked, opening, sheet
from rlhf_studio.runs.errors import StoreError

LIBRARIES = ("rlhf_studio.ppo", "transformers.modeling_utils", "rlhf_studio.lessons.run")
"""What takes long to load, in the order in which lessons need it: torch, transformers, the engine's models."""
Json = dict[str, Any]


def serve() -> int:
    """Answer until standard input closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # from here on, what libraries print goes to the error stream and cannot be taken for an answer
    os.nice(5)  # a run on this machine comes first
    gc.disable()  # the libraries leave many objects that stay: to look through them while they load takes a sixth of the time
    for library in LIBRARIES:
        if not _somebody_asks():
            import_module(library)
    for line in sys.stdin:
        request = json.loads(line)
        reply = {"number": request.get("number"), **_reply(request)}
        answers.write(json.dumps(reply, allow_nan=False) + "\n")
        answers.flush()
        if not gc.isenabled():  # after the first answer: by then what stays has been loaded
            gc.freeze()
            gc.enable()
    return 0


def _somebody_asks() -> bool:
    """Whether a request waits already: its answer may need fewer libraries than all."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _reply(request: Json) -> Json:
    try:
        return {"answer": answer(request)}
    except (NoLesson, NoScene, CannotAsk, StoreError, ValueError) as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - the last line of defence: the page must be told, and the next request be answered
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def answer(request: Json) -> Any:
    """What is asked for. Raises NoLesson, NoScene, CannotAsk, StoreError, and ValueError for values that do not fit."""
    lesson, language, op = str(request.get("lesson")), str(request.get("language", "en")), request.get("op")
    if op in ("sheet", "opening", "asked"):
        return _of_teaching(request, lesson, language)
    values, whose = request.get("values"), Asked(str(request.get("folder", "")), str(request.get("as_of", "")))
    if op == "describe":
        return beginning(lesson, values if isinstance(values, dict) else {}, language, whose)
    scene = str(request.get("scene"))
    if op == "draw":
        values = drawn(lesson, scene, int(request.get("seed", 0)), whose)
        return {"values": values, "shown": computed(lesson, scene, values, language, whose)}
    if not isinstance(values, dict):
        raise ValueError("values must be an object with a value for each control")
    if op == "compute":
        return computed(lesson, scene, values, language, whose)
    if op == "sweep":
        return swept(lesson, scene, str(request.get("control")), values, language, whose)
    raise ValueError(f"op must be describe, compute, sweep or draw, got {op!r}")


def _of_teaching(request: Json, lesson: str, language: str) -> Json:
    seed = request.get("seed", 0)
    if request.get("op") == "opening":
        return {"question": opening(lesson, seed, language)}
    if request.get("op") == "asked":
        return asked(question_of(lesson, str(request.get("scene"))), seed, language=language)
    return sheet(
        request.get("lessons", ()), request.get("each", 0), seed, with_answers=request.get("with_answers") is True, language=language
    )
