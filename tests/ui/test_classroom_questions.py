"""Questions that a teacher need not write: each that is offered can be asked, with the lessons' own numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlhf_studio.lessons.server import answer
from rlhf_studio.runs.classroom.records import RoundQuestion
from rlhf_studio.runs.feedback.store import NotPossible
from rlhf_studio.ui.classroom import ready
from rlhf_studio.ui.learn.computing import NotComputed


def test_every_question_about_an_experiment_can_be_asked() -> None:
    for group in ready.of_experiments():
        for row in group["questions"]:
            question = ready.experiment_question(row["ask"]["show"], row["ask"].get("draw", ""), 0)
            assert bool(question.metric) != bool(question.options)
            named = [question.text.lower().index(option.lower()) for option in question.options]
            assert named == sorted(named)  # the options stand in the order in which the question names them
            assert not question.options or "Two runs" in question.text  # so that "the other run" is known
    assert "@" not in str(ready.of_lessons()) and len(offered()) > 50


def offered() -> list[tuple[str, str]]:
    rows = [row["ask"] for group in ready.of_lessons() for row in group["questions"]]
    return [(ask["lesson"], ask["scene"]) for ask in rows]


def complete(question: RoundQuestion) -> bool:
    """Whether a question has all its numbers, and one right option."""
    words = " ".join([question.text, *question.options])
    return "…" not in words and "@" not in words and question.right in range(len(question.options))


@pytest.mark.long
def test_every_question_of_the_lessons_can_be_asked() -> None:
    assert [question for question in offered() if not complete(ready.lesson_question(*question, answer))] == []


def described(computed: Any) -> tuple[Callable[[Any], Any], list[Any]]:
    """A stand-in for the process, which computes this for a scene that it does not describe at once; and what it is asked."""
    controls = [
        {"name": "eps", "start": 0.2},
        {"name": "step", "start": 1, "value": 7, "shared": True, "made": True},
        {"name": "token", "start": 1, "value": 3, "shared": False, "made": True},
    ]
    questions: list[Any] = []

    def compute(question: Any) -> Any:
        questions.append(question)
        if question["op"] == "describe":
            return {"scenes": {"dead_zones": {"controls": controls, "slow": False, "shown": None}}}
        return computed

    return compute, questions


def test_what_is_not_described_is_computed_with_the_values_of_the_start() -> None:
    compute, asked = described({"problem": "The run has no such step."})
    with pytest.raises(NotPossible, match="no such step"):
        ready.lesson_question("clip", "dead_zones", compute)
    assert asked[-1] == {
        "op": "compute",
        "lesson": "clip",
        "scene": "dead_zones",
        "language": "en",
        "values": {"eps": 0.2, "step": 7, "token": None},
    }


def test_a_process_that_gives_no_numbers_is_a_sentence() -> None:
    def broken(question: Any) -> Any:
        raise NotComputed("It has ended. Try again.")

    with pytest.raises(NotComputed):
        ready.lesson_question("clip", "dead_zones", broken)


def test_what_cannot_be_a_question_is_refused() -> None:
    with pytest.raises(NotPossible, match="options"):
        ready.as_question("?", options=("a",))
    with pytest.raises(NotPossible, match="drawn"):
        ready.field_of("rm -rf")
