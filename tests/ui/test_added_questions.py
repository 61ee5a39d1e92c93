"""Questions and answers that people add to lessons: who may, what is kept, and that nothing is lost or doubled."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_studio.lessons.teaching.added import FILE, KEPT_SECONDS, MOST_BYTES, MOST_OF_A_PLACE, Added
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.learn.added import AddedQuestions
from rlhf_studio.ui.visiting.modes import Mode

MARKUP = "<img src=x onerror=alert(1)>"


def test_what_is_added_is_kept_answered_deleted_and_taken_back(tmp_path: Path) -> None:
    time = SimpleNamespace(now=1000.0)
    added = Added(tmp_path, now=lambda: time.now)
    first = added.add("clip", f"Why {MARKUP}?", "Because.\nTwo lines.", "operator")
    second = added.add("clip", "And this?", "", "student")
    assert [entry.question for entry in Added(tmp_path).entries("clip")] == [f"Why {MARKUP}?", "And this?"]
    assert added.answer(second.id, "And this one?", "So.").answer == "So."
    added.delete(first.id)
    assert [entry.id for entry in added.entries()] == [second.id]
    added.restore(first.id)
    assert [entry.id for entry in added.entries()] == [first.id, second.id]
    added.delete(first.id)
    time.now += KEPT_SECONDS + 1
    added.add("tour.gae", "A station?", "Yes.", "teacher")
    assert MARKUP not in (tmp_path / FILE).read_text()  # what is deleted is gone
    with pytest.raises(ValueError, match="not there any more"):
        added.restore(first.id)
    assert [path.name for path in tmp_path.glob(".added*")] == []


def test_another_workspace_takes_them_in_once_and_nothing_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, there = Added(tmp_path / "a"), Added(tmp_path / "b")
    here.add("clip", "Why?", "Because.", "teacher")
    here.add("gae", "Waiting?", "", "student")
    text = here.exported()
    assert there.take_in(text) == (1, 0) and there.take_in(text) == (0, 1)
    (entry,) = there.entries()
    assert (entry.place, entry.question, entry.answer, entry.role) == ("clip", "Why?", "Because.", "teacher")
    good = json.loads(text)["entries"][0]
    for wrong in (
        *({"place": "../clip"}, {"place": 5}, {"question": ""}, {"question": "x" * 301}, {"answer": ""}, {"answer": "x" * 2001}),
        *({"role": "owner"}, {"at": "yesterday"}, {"at": -1}, {"question": "a\u202eb"}, {"answer": None}),
    ):
        with pytest.raises(ValueError):
            there.take_in(json.dumps({**json.loads(text), "entries": [good, {**good, **wrong}]}))
    for wrong_text in ("", "[]", "{}", "null", json.dumps({"entries": []}), text.replace(": 1,", ": 2,")):
        with pytest.raises(ValueError):
            there.take_in(wrong_text)
    assert len(there.entries()) == 1
    many = [{**good, "question": f"{number}?"} for number in range(MOST_OF_A_PLACE + 1)]
    with pytest.raises(ValueError, match="Delete some first"):
        there.take_in(json.dumps({**json.loads(text), "entries": many}))
    (tmp_path / "b" / FILE).write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        there.add("clip", "Lost?", "No.", "teacher")
    assert (tmp_path / "b" / FILE).read_text() == "{"


def page_for(tmp_path: Path, mode: Mode, *, operator: bool, plays: bool) -> tuple[AddedQuestions, Any]:
    """The page's functions for somebody, and the request of a browser with a cookie."""

    def require_operator(request: Any, data: Any) -> None:
        assert operator

    access: Any = SimpleNamespace(
        mode=mode,
        is_operator=lambda request, data=None: operator,
        plays=lambda request, data=None: plays,
        require_operator=require_operator,
        visitors=SimpleNamespace(key_in=lambda headers: headers["key"]),
    )
    return AddedQuestions(Workspace(tmp_path), access), SimpleNamespace(headers={"key": "one"})


def test_what_is_taken_can_be_read_again_and_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    added, long = Added(tmp_path), "\u5b57" * 2000
    row = {"question": "Why?", "answer": long, "role": "teacher", "at": 1.0}
    rows = [{**row, "place": place, "question": f"Why {number}?"} for place in ("clip", "gae", "tour.gae") for number in range(50)]
    text = json.dumps({**json.loads(added.exported()), "entries": rows})
    with pytest.raises(ValueError, match="together may have 700,000 bytes"):
        added.take_in(text)
    assert added.entries() == []
    few = json.dumps({**json.loads(added.exported()), "entries": rows[:100]})
    assert added.take_in(few) == (100, 0) and (tmp_path / FILE).stat().st_size < MOST_BYTES
    whole = (tmp_path / FILE).read_text()
    for damaged in ("[" * 200_000, whole.replace('"deleted_at": 0.0', '"deleted_at": "y"'), whole.replace('"Why 3?"', '["x"]'), "\x00", ""):
        (tmp_path / FILE).write_text(damaged)
        with pytest.raises(StoreError, match="cannot be read"):
            added.entries()
    with pytest.raises(ValueError, match="no file of questions"):
        added.take_in("[" * 200_000)


def test_students_ask_one_question_which_the_teacher_answers(tmp_path: Path) -> None:
    students, one = page_for(tmp_path, Mode.CLASSROOM, operator=False, plays=True)
    teacher, at_desk = page_for(tmp_path, Mode.CLASSROOM, operator=True, plays=False)
    watching, _ = page_for(tmp_path, Mode.CLASSROOM, operator=False, plays=False)
    assert students.added_ask({"place": "clip", "question": "Why a clip?"}, one) == {}
    assert "waits for your teacher" in students.added_ask({"place": "gae", "question": "And this?"}, one)["problem"]
    assert students.added_ask({"place": "gae", "question": "Mine?"}, SimpleNamespace(headers={"key": "two"})) == {}
    assert "problem" in watching.added_ask({"place": "clip", "question": "Me too?"}, one)
    seen = students.added_here({"place": "clip"}, one)
    assert (seen["entries"], seen["ask"], seen["waits"], seen["change"]) == ([], True, True, False)
    first, _ = teacher.added_here({}, at_desk)["entries"]
    assert "key" not in first and "one" not in (tmp_path / FILE).read_text()
    teacher.added_change({"op": "answer", "id": first["id"], "question": "Why a clip?", "answer": "Small steps."}, at_desk)
    seen = students.added_here({"place": "clip"}, one)
    assert [entry["answer"] for entry in seen["entries"]] == ["Small steps."] and not seen["waits"]
    assert students.added_ask({"place": "clip", "question": "Another?"}, one) == {}


def test_operators_add_and_what_is_wrong_is_said(tmp_path: Path) -> None:
    page, request = page_for(tmp_path, Mode.LOCAL, operator=True, plays=False)
    assert "id" in page.added_change({"op": "add", "place": "clip", "question": "Why?", "answer": "So."}, request)
    assert page.added_here({"place": "clip"}, request)["entries"][0]["role"] == "operator"
    for wrong in (None, {}, {"op": "add"}, {"op": "add", "place": "clip", "question": "Why?"}, {"op": "delete", "id": "x"}, {"op": "load"}):
        assert page.added_change(wrong, request)["problem"]
    assert page.added_ask({"place": "clip", "question": "Why?"}, request)["problem"]
