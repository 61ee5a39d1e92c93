"""Rounds of a class: each student counts once, curves have their bounds, and nothing tells who answered once the class is over."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.classroom.records import POINTS, RoundQuestion, StudentAnswer, as_lines, as_table, distribution, read_answer, rows_of
from rlhf_studio.runs.classroom.store import ClassStore
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.store import NotPossible
from rlhf_studio.runs.people import change
from rlhf_studio.runs.studio import read
from rlhf_studio.runs.visitors.starters import Starter, forget_students, set_starter

CHOICE = RoundQuestion("Higher or lower?", options=("Higher", "Lower"), right=1)
CURVE = RoundQuestion("Draw the KL.", metric="objective/kl", label="KL", first=1, last=20, low=0, high=60)


def test_each_student_counts_once_and_the_last_answer_counts(tmp_path: Path) -> None:
    store = ClassStore(tmp_path)
    class_round = store.ask(CHOICE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.answer(class_round.id, f"key{number % 30}", "", number % 2), range(90)))
    assert store.answer(class_round.id, "key0", "", 1) == 30
    given = store.answers(class_round.id)
    assert len(given) == len({answer.person for answer in given}) == 30
    assert next(answer.answer for answer in given if answer.person == "key0") == 1
    store.move(class_round.id, "closed")
    with pytest.raises(NotPossible, match="closed"):
        store.answer(class_round.id, "late", "", 0)
    assert store.move(class_round.id, "open").state == "open" and store.move(class_round.id, "shown").state == "shown"
    assert store.move(class_round.id, "open").state == "shown"  # never back once anything was shown
    second = store.ask(CURVE)
    assert [each_round.state for each_round in store.rounds()] == ["open", "over"] and store.round(second.id).question == CURVE


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([[1, 0], [10, 5]], "left edge to the right"),
        ([[5, 0], [20, 5]], "left edge to the right"),
        ([[1, 0]], "2 to 400"),
        ([[1, float("nan")], [20, 1]], "numbers"),
        ([[1, True], [20, 1]], "numbers"),
        ([[-1.7e308, -1.7e308], [1.7e308, 1.7e308]], "numbers"),  # what lies between them is no number
        ("x", "2 to 400"),
        ([[1, 0]] * 401, "2 to 400"),
    ],
)
def test_what_is_no_curve_is_refused(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_answer(CURVE, value)


def test_a_curve_is_kept_at_equal_steps_inside_the_field() -> None:
    heights = read_answer(CURVE, [[1, 0], [20, 95]])
    assert isinstance(heights, tuple) and len(heights) == POINTS
    for index, height in enumerate(heights):
        assert height == pytest.approx(min(95 * index / (POINTS - 1), 60), abs=1e-5)


@pytest.mark.parametrize("value", [-1, 2, True, "0", None, [[1, 2]]])
def test_what_is_no_option_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="one of the options"):
        read_answer(CHOICE, value)


def given(answer: Any, name: str = "") -> StudentAnswer:
    return StudentAnswer("key", name, answer, 0, 0.0)


def test_the_middle_of_all_curves() -> None:
    levels = [3.0, 10.0, 11.0, 12.0, 50.0, 7.0]
    summary = distribution(CURVE, [(level,) * POINTS for level in levels])
    low, median, high = statistics.quantiles(levels, n=4, method="inclusive")
    for name, value in (("low", low), ("median", median), ("high", high)):
        assert summary[name] == pytest.approx([value] * POINTS)
    assert distribution(CHOICE, [1, 1, 0]) == {"counts": [1, 2]}
    assert distribution(CURVE, [])["curves"] == []


def test_at_the_end_of_a_class_only_names_are_left_even_in_the_bytes(tmp_path: Path) -> None:
    store = ClassStore(tmp_path)
    class_round = store.ask(CHOICE)
    for key, name in (("k" * 24, "Ann"), ("m" * 24, "")):
        store.set_name(key, name)
        store.answer(class_round.id, key, name, 0)
    with change(tmp_path) as connection:
        set_starter(connection, "run", Starter("student", "Ann", "k" * 24, "a" * 24))
    store.end_class()
    with change(tmp_path) as connection:
        forget_students(connection)
    assert read(tmp_path).starters["run"] == Starter("student", "Ann")
    assert sorted(answer.name for answer in store.answers(class_round.id)) == ["", "Ann"]
    assert store.names() == {} and store.round(class_round.id).state == "over"
    store.close()
    database_bytes = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"k" * 24 not in database_bytes and b"m" * 24 not in database_bytes and b"Ann" in database_bytes


def test_a_class_that_nobody_ended_is_ended_when_it_is_old(tmp_path: Path) -> None:
    now = [1000.0]
    store = ClassStore(tmp_path, now=lambda: now[0])
    store.set_name("ann", "Ann")
    now[0] += 100
    store.end_older(200)
    assert store.names() == {"ann": "Ann"}
    store.end_older(50)
    assert store.names() == {}


def test_names_that_are_turned_off_are_removed(tmp_path: Path) -> None:
    store = ClassStore(tmp_path)
    class_round = store.ask(CHOICE)
    store.set_name("ann", "Ann")
    store.answer(class_round.id, "ann", "Ann", 0)
    store.remove_names()
    assert store.names() == {} and store.answers(class_round.id)[0].name == ""


def test_a_round_as_rows(tmp_path: Path) -> None:
    store = ClassStore(tmp_path)
    class_round = store.ask(CHOICE)
    store.answer(class_round.id, "ann", "=cmd()", 1)
    rows = [json.loads(line) for line in as_lines(rows_of(class_round, store.answers(class_round.id))).splitlines()]
    assert [(row["name"], row["answer"], row["right"]) for row in rows] == [("=cmd()", "Lower", True)]
    (row,) = csv.DictReader(io.StringIO(as_table(rows_of(class_round, store.answers(class_round.id)), str.upper)))
    assert row["name"] == "=CMD()" and "ann" not in row.values() and row["number"] == "1"
    rows_of_a_curve = rows_of(class_round.__class__("r", CURVE, "over", "", 0, 1), [given((2.0,) * POINTS)])
    drawn = list(csv.DictReader(io.StringIO(as_table(rows_of_a_curve, str))))
    assert float(drawn[0]["step 1"]) == float(drawn[0]["step 20"]) == 2


@pytest.mark.parametrize(
    "harm",
    ["answers SET answer = '[1.0, 2.0]'", "answers SET answer = '7'", "rounds SET state = 'shut'", "answers SET answer = '[NaN]'"],
)
def test_rows_that_no_program_of_ours_wrote_are_damage(harm: str, tmp_path: Path) -> None:
    store = ClassStore(tmp_path)
    class_round = store.ask(CURVE)
    store.answer(class_round.id, "ann", "", (2.0,) * POINTS)
    store.close()
    with sqlite3.connect(tmp_path / "people.db") as connection:
        connection.execute(f"UPDATE {harm}")
    with pytest.raises(StoreError, match=r"people\.db is damaged"):
        store.answers(class_round.id)
