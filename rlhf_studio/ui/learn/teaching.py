"""The functions of "For teachers" on the Learn page: plans, sheets of questions, and result codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.language import _, told
from rlhf_studio.lessons.shelf import NoLesson
from rlhf_studio.lessons.teaching import codes, plan
from rlhf_studio.lessons.teaching.questions import MOST_EACH, Selection, question_of, two_back
from rlhf_studio.ui import sent
from rlhf_studio.ui.learn.computing import Computer, NotComputed

MOST_LINES, LONGEST_LINE = 200, 200
Json = dict[str, Any]


class Teaching:
    """The function ``learn_teach``; everyone may ask it, for it reads lessons and nothing else.

    Args:
        computer: computes the numbers of a single question; ``slow_computer`` those of a sheet, so that nobody waits for a sheet to
            move a slider.
    """

    def __init__(self, computer: Computer, slow_computer: Computer) -> None:
        self._computer, self._slow = computer, slow_computer

    def learn_teach(self, data: Any, request: gr.Request) -> Response:
        """The answer to ``what``. Gives ``answer``, or ``error``.

        - ``plans``: the texts, and the largest number of questions of each lesson;
        - ``sheet``: of ``lessons``, ``each`` and ``seed``, with answers or without (:func:`rlhf_studio.lessons.teaching.sheets.sheet`);
        - ``before``: the lesson that comes two before ``lesson``, and ``light``, whether its question needs no model;
        - ``opening``: the question for that lesson; ``asked``: the question of ``lesson`` and ``scene`` with numbers of ``seed``;
        - ``code``: the result code of the same selection and ``outcomes``;
        - ``check``: what the codes in ``lines`` say.
        """
        answers: dict[str, Callable[[Any], Any]] = {
            "plans": lambda data: {"plans": plan.plans(sent.language_of(data)), "most_each": MOST_EACH},
            "sheet": self._sheet,
            "before": lambda data: _before(*_lesson_and_seed(data), sent.language_of(data)),
            "opening": self._opening,
            "asked": self._asked,
            "code": lambda data: {"code": codes.encode(_selection(data), _outcomes(data))},
            "check": lambda data: {"rows": codes.checked(_lines(data))},
        }
        what = sent.member(data, "what")
        try:
            if not isinstance(what, str) or what not in answers:
                raise ValueError(f"what must be one of {', '.join(answers)}")
            return sent.as_json({"answer": answers[what](data)})
        except (NotComputed, NoLesson, ValueError) as error:
            return sent.as_json({"error": told(error)})

    def _sheet(self, data: Any) -> Any:
        selection = _selection(data)
        question = {"lessons": list(selection.lessons), "each": selection.each, "seed": selection.seed}
        with_answers = sent.member(data, "with_answers") is True
        return self._slow.ask({"op": "sheet", **question, "with_answers": with_answers, "language": sent.language_of(data)})

    def _opening(self, data: Any) -> Any:
        lesson, seed = _lesson_and_seed(data)
        return self._computer.ask({"op": "opening", "lesson": lesson, "seed": seed, "language": sent.language_of(data)})

    def _asked(self, data: Any) -> Any:
        lesson, seed = _lesson_and_seed(data)
        question = question_of(lesson, str(sent.member(data, "scene")))
        return self._computer.ask(
            {"op": "asked", "lesson": lesson, "scene": question.scene, "seed": seed, "language": sent.language_of(data)}
        )


def _lesson_and_seed(data: Any) -> tuple[str, int]:
    lesson, seed = sent.member(data, "lesson"), sent.member(data, "seed")
    if not isinstance(lesson, str):
        raise ValueError("lesson must be a name")
    return lesson, Selection.of([lesson], 1, seed).seed


def _before(lesson: str, seed: int, language: str) -> Json | None:
    question = two_back(lesson, seed, language)
    return {"lesson": question.lesson, "title": question.title, "light": question.light} if question else None


def _selection(data: Any) -> Selection:
    lessons = sent.member(data, "lessons")
    if not isinstance(lessons, list) or not all(isinstance(name, str) for name in lessons):
        raise ValueError("lessons must be a list of names")
    return Selection.of(lessons, sent.member(data, "each"), sent.member(data, "seed"))


def _outcomes(data: Any) -> list[str]:
    outcomes = sent.member(data, "outcomes")
    if not isinstance(outcomes, list) or not all(isinstance(outcome, str) for outcome in outcomes):
        raise ValueError("outcomes must be a list of names")
    return outcomes


def _lines(data: Any) -> list[str]:
    text = sent.member(data, "lines")
    lines = text.splitlines() if isinstance(text, str) else []
    if len(lines) > MOST_LINES or any(len(line) > LONGEST_LINE for line in lines):
        raise ValueError(_("at most {lines} lines of {letters} letters, please").format(lines=MOST_LINES, letters=LONGEST_LINE))
    return lines
