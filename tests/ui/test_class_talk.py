"""Students of a class ask a model: one line for all, what one may ask, who goes first, and what is told to whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.child_process.service import Service
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.classroom.room import Classroom
from rlhf_studio.ui.sent import QuestionRefused
from rlhf_studio.ui.talk.line import AWAY, ENDED_BY_TEACHER, GONE, NO_PLACE, OFF, RESTS, Line, LineLimits, Question
from tests.ui.talk_stand_in import COMMAND
from tests.ui.test_classroom import TEACHER, answer_of, lesson, post, student  # noqa: F401
from tests.ui.test_talk import run_with_checkpoints
from tests.waiting import wait_until

Json = dict[str, Any]


class Class:
    """A line with its room, and a clock that the test moves."""

    def __init__(self, root: Path, **limits: Any) -> None:
        self.run = run_with_checkpoints(root)
        self.room, self.time, self.busy = Classroom(), 0.0, False
        self.room.talks_to = self.run
        self.service = Service("talk", command=COMMAND)
        self.line = Line(Workspace(root), self.room, self.service, lambda: self.busy, LineLimits(**limits), lambda: self.time)
        for name in ("ann", "bob", "cleo", "dan"):
            self.room.students.come(name)

    def ask(self, person: str, prompt: str = "hello") -> Question:
        return self.line.ask(person, prompt)

    def begun(self, person: str, prompt: str = "hang") -> Question:
        """A question whose answer has begun; that of "hang" goes on until it is stopped."""
        question = self.ask(person, prompt)
        wait_until(lambda: any(event["event"] == "token" for event in question.events))
        return question

    def refused(self, person: str, prompt: Any = "hello") -> str:
        with pytest.raises(QuestionRefused) as refusal:
            self.line.ask(person, prompt)
        return str(refusal.value)

    def news(self, question: Question) -> Json:
        return self.line.news(question.person, question.key, 0)

    def done(self, question: Question) -> list[Json]:
        wait_until(lambda: self.news(question)["state"] == "done")
        events: list[Json] = self.news(question)["events"]
        return events


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Class]:
    made = Class(tmp_path)
    yield made
    made.line.close()
    made.service.close()


def test_who_asks_again_waits_behind_everybody_else(room: Class) -> None:
    first = room.begun("ann")
    bob, cleo = room.ask("bob"), room.ask("cleo")
    assert [room.news(question)["place"] for question in (bob, cleo)] == [2, 3]
    assert room.line.counts == {"asking": 3, "asked": 3}
    assert "before this one is being answered" in room.refused("ann")
    changed = room.ask("bob", "another question")  # it keeps the place
    assert room.news(bob) == {"error": GONE} and room.news(changed)["place"] == 2
    room.line.take_back("ann", first.key)
    assert [event["event"] for event in room.done(first)][-1] == "stopped"
    again = room.ask("ann")
    order: list[str] = []
    for question in (changed, cleo, again):
        room.done(question)
        order.append(question.events[0]["event"])
    began = [question.job.key for question in (changed, cleo, again) if question.job]
    assert list(room.service._known)[-3:] == began  # as they came to the process
    asked = again.request
    assert [side["step"] for side in asked["sides"]] == [None, 20]
    assert all(side["settings"]["response_length"] <= room.line.limits.tokens for side in asked["sides"])


def test_the_teacher_and_training_go_first(room: Class) -> None:
    first, bob = room.begun("ann"), room.ask("bob")
    teacher = room.service.submit({**first.request, "prompt": "hang"})
    room.line.take_back("ann", first.key)
    wait_until(lambda: teacher.state == "working")
    wait_until(lambda: room.news(bob).get("first") == "teacher")
    assert bob.job is None and room.news(bob)["seconds"] is None  # no answer was timed yet
    room.service.cancel(teacher)
    room.done(bob)
    room.busy = True  # a run has begun
    cleo = room.begun("cleo")
    room.time += 2
    room.line.take_back("cleo", cleo.key)
    room.done(cleo)
    dan = room.ask("dan")
    wait_until(lambda: room.news(dan).get("first") == "training")
    room.time += 2 * RESTS - 0.5
    assert room.news(dan)["state"] == "waiting"
    room.time += 0.5
    room.done(dan)


def test_what_one_student_and_all_may_ask_for(tmp_path: Path) -> None:
    small = Class(tmp_path, waiting=2, of_one=3, within=60.0, prompt=50)
    assert "Use at most 50" in small.refused("ann", "x" * 51) and "Type something" in small.refused("ann", " \n")
    for prompt in (None, 3, ["x"], {"x": 1}):
        assert "Type something" in small.refused("ann", prompt)
    assert small.refused("nobody") == NO_PLACE
    small.begun("ann")
    bob = [small.ask("bob", f"question {number}") for number in range(3)][-1]
    assert small.refused("bob") == "You have asked 3 questions in 1 minutes. You can ask again in 60 s."
    small.ask("cleo")
    assert "2 questions are in line already" in small.refused("dan")
    assert small.line.news("dan", bob.key, 0) == {"error": GONE}  # another's answer
    small.line.take_back("dan", bob.key)
    assert small.news(bob)["state"] == "waiting"
    small.time += 61
    assert small.line.counts["asking"] == 3
    small.line.close()
    small.service.close()


def test_off_ends_every_question_and_who_has_left_is_dropped(room: Class) -> None:
    first, bob, cleo, dan = room.begun("ann"), room.ask("bob"), room.ask("cleo"), room.ask("dan")
    room.room.students.strike(["cleo"])
    room.time += room.line.limits.away + 1
    room.news(dan)
    wait_until(lambda: room.line.counts["asking"] == 2)
    assert [room.done(question)[-1]["error"] for question in (bob, cleo)] == [AWAY, NO_PLACE]
    room.room.talks_to = ""
    room.line.stop()
    assert [room.done(question)[-1]["error"] for question in (first, dan)] == [ENDED_BY_TEACHER] * 2
    assert room.refused("ann") == OFF
    wait_until(lambda: room.line.counts["asking"] == 0)


def test_the_teacher_lets_students_ask_and_the_server_holds_everybody_to_it(lesson: Any) -> None:  # noqa: F811
    run = run_with_checkpoints(lesson.workspace.root)
    lesson.services.class_line._service = Service("talk", command=COMMAND)
    ann, bob, viewer = student(lesson, 1), student(lesson, 2), {}

    def asked(name: str, data: Json, headers: dict[str, str]) -> tuple[int, Any]:
        return post(lesson, f"talk-page.student_{name}", data, headers)

    assert asked("ask", {"prompt": "hello"}, ann)[1] == {"error": OFF}
    assert post(lesson, "talk-page.boot", {}, ann)[1]["students"]["why"] == OFF
    assert post(lesson, "shell-page.class_change", {"talk": run}, ann)[0] == 403
    assert "no checkpoint" in answer_of(lesson, "change", {"talk": "../other"}, TEACHER)["problem"]
    told = answer_of(lesson, "change", {"talk": run}, TEACHER)
    assert (told["talk"], told["asking"], [known["id"] for known in told["talk_runs"]]) == (run, 0, [run])
    assert asked("ask", {"prompt": "hello"}, viewer)[0] == 403 and asked("news", {"key": ""}, viewer)[0] == 403
    assert "students" not in post(lesson, "talk-page.boot", {}, viewer)[1]
    assert asked("ask", {"prompt": "hello", "view": True}, ann)[1].keys() == {"error"}
    assert asked("ask", {"prompt": "x" * 9_000}, ann)[0] == 413
    assert post(lesson, "talk-page.ask", {"prompt": "hello"}, ann)[0] == 403  # the teacher's own way
    own = asked("ask", {"prompt": "hang", "sides": [], "settings": {"response_length": 500}}, ann)[1]
    assert own["step"] == 20
    assert asked("news", {"key": own["key"], "since": 0}, bob)[1] == {"error": GONE}
    wait_until(lambda: answer_of(lesson, "now", {}, bob)["asking"] == 1)
    answer_of(lesson, "change", {"talk": ""}, TEACHER)
    wait_until(lambda: asked("news", {"key": own["key"], "since": 0}, ann)[1]["state"] == "done")
    assert asked("news", {"key": own["key"], "since": 0}, ann)[1]["events"][-1]["error"] == ENDED_BY_TEACHER
    assert asked("ask", {"prompt": "hello"}, ann)[1] == {"error": OFF}
    lesson.services.class_line._service.close()
