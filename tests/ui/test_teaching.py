"""What the place for teachers asks, without a browser: bounds, codes, and that the app needs no torch for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlhf_studio.lessons.server import answer
from rlhf_studio.lessons.teaching import codes
from rlhf_studio.lessons.teaching.questions import Selection
from rlhf_studio.lessons.teaching.sheets import opening, question_data, sheet
from rlhf_studio.ui.learn.teaching import Teaching
from tests.ui.train_helpers import VIEWER

CHOICE = {"lessons": ["gae", "clip"], "each": 1, "seed": 7}


class InThisProcess:
    """Stands in for the process that computes: the same answers, as the data that would come through the pipe."""

    def ask(self, question: dict[str, Any]) -> Any:
        return json.loads(json.dumps(answer(question)))


@pytest.fixture
def page() -> Teaching:
    computer: Any = InThisProcess()
    return Teaching(computer, computer)


def teach(page: Teaching, **question: Any) -> Any:
    reply = json.loads(bytes(page.learn_teach(question, VIEWER).body))
    return reply["answer"] if "answer" in reply else reply["error"]


def test_everyone_may_read_what_is_for_teachers(page: Teaching) -> None:
    assert [plan["name"] for plan in teach(page, what="plans")["plans"]] == ["hour", "double", "in_class"]
    assert teach(page, what="before", lesson="clip", seed=1)["lesson"] == "gae"
    assert teach(page, what="before", lesson="rlhf", seed=1) is None


def test_the_process_draws_what_the_functions_draw(page: Teaching) -> None:
    assert teach(page, what="sheet", with_answers=True, **CHOICE) == json.loads(json.dumps(sheet(["gae", "clip"], 1, 7)))
    exercises = teach(page, what="sheet", **CHOICE)
    assert not exercises["with_answers"] and all("answer" not in question for question in exercises["questions"])
    assert teach(page, what="opening", lesson="clip", seed=4)["question"] == json.loads(json.dumps(opening("clip", 4)))
    question = Selection.of(["clip"], 1, 3).picked()[0]
    assert teach(page, what="asked", lesson="clip", scene=question.scene, seed=9) == json.loads(json.dumps(question_data(question, 9)))


def test_a_code_is_made_and_checked(page: Teaching) -> None:
    code = teach(page, what="code", outcomes=["first", "not"], **CHOICE)["code"]
    assert code == codes.encode(Selection.of(["gae", "clip"], 1, 7), ["first", "not"])
    good, bad = teach(page, what="check", lines=f"Ana {code}\n\n{code[:-1]}")["rows"]
    assert (good["who"], good["outcomes"]) == ("Ana", ["first", "not"]) and "typing error" in bad["problem"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "what must be one of plans, sheet"),
    *(({"what": what}, "what must be one of") for what in ([], {}, 7, "delete")),
    ({"what": "sheet", **CHOICE, "lessons": "clip"}, "lessons must be a list of names"),
    ({"what": "sheet", **CHOICE, "lessons": ["nowhere"]}, "There is no lesson 'nowhere'"),
    ({"what": "sheet", **CHOICE, "each": 100}, "questions of each lesson: a whole number from 1 to 6, got 100"),
    ({"what": "sheet", **CHOICE, "seed": "7"}, "the seed is a whole number"),
    ({"what": "opening", "lesson": 3, "seed": 1}, "lesson must be a name"),
    ({"what": "asked", "lesson": "clip", "scene": "nowhere", "seed": 1}, "The lesson clip has no question in a scene 'nowhere'"),
    ({"what": "code", **CHOICE, "outcomes": ["first"]}, "there must be one outcome"),
    ({"what": "code", **CHOICE, "outcomes": [1, 2]}, "outcomes must be a list of names"),
    ({"what": "check", "lines": "x\n" * 201}, "at most 200 lines"),
    ({"what": "check", "lines": "x" * 201}, "at most 200 lines of 200 letters"),
]


def test_what_does_not_fit_is_refused_before_it_reaches_a_process() -> None:
    computer: Any = None
    page = Teaching(computer, computer)
    for question, message in REFUSED:
        assert teach(page, **question).startswith(message), question
