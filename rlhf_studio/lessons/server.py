"""The requests for the numbers of lessons, worked on in a child process (:mod:`rlhf_studio.child_process.serving`).

Requests:

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

The event ``answer`` has the ``answer``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rlhf_studio.child_process.serving import Handler, IsCancelled, Json, Tell
from rlhf_studio.language import ENGLISH, speaking
from rlhf_studio.lessons.answers import ChosenRun, NoScene, beginning, computed, drawn, swept
from rlhf_studio.lessons.kit import CannotAsk
from rlhf_studio.lessons.shelf import NoLesson
from rlhf_studio.lessons.teaching.questions import question_of
from rlhf_studio.lessons.teaching.sheets import opening, question_data, sheet
from rlhf_studio.runs.errors import StoreError

LIBRARIES = ("rlhf_studio.ppo", "transformers.modeling_utils", "rlhf_studio.lessons.run")
"""What takes long to load, in the order in which lessons need it: torch, transformers, the engine's models."""


MESSAGES = (NoLesson, NoScene, CannotAsk, StoreError, ValueError)


def handler(waits: Callable[[], bool]) -> Handler:
    """Loads the libraries before the first request comes. One that waits already may need fewer of them than all."""
    gc.disable()  # the libraries leave many objects that stay: to look through them while they load takes a sixth of the time
    for library in LIBRARIES:
        if not waits():
            import_module(library)

    def compute(request: Json, tell: Tell, is_cancelled: IsCancelled) -> None:
        with speaking(str(request.get("language", ENGLISH))):
            tell({"event": "answer", "answer": answer(request)})
        if not gc.isenabled():  # after the first answer: by then what stays has been loaded
            gc.freeze()
            gc.enable()

    return compute


def answer(request: Json) -> Any:
    """The answer to a request. Raises NoLesson, NoScene, CannotAsk, StoreError, and ValueError for values that do not fit."""
    lesson, language, op = str(request.get("lesson")), str(request.get("language", "en")), request.get("op")
    if op in ("sheet", "opening", "asked"):
        return _of_teaching(request, lesson, language)
    values, whose = request.get("values"), ChosenRun(str(request.get("folder", "")), str(request.get("as_of", "")))
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
        return question_data(question_of(lesson, str(request.get("scene"))), seed, language=language)
    return sheet(
        request.get("lessons", ()), request.get("each", 0), seed, with_answers=request.get("with_answers") is True, language=language
    )
