"""The store of human feedback: who gets what, answers that count once, and nothing lost."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs import schema
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback import turns
from rlhf_studio.runs.feedback.exchange import agreed_rows, export_rows, pairs_of_ranks, read_lines
from rlhf_studio.runs.feedback.records import NewItem, NewTask, NewVote, Turn
from rlhf_studio.runs.feedback.store import Feedback, Refused
from tests.runs.store_helpers import NASTY_TEXTS, REPOSITORY, python_environment

PAIRS = [NewItem(f"prompt {number}", (f"first of {number}", f"second of {number}")) for number in range(6)]


@pytest.fixture
def feedback(tmp_path: Path) -> Feedback:
    return Feedback(tmp_path)


def task_with(feedback: Feedback, items: list[NewItem] | None = None, **settings: Any) -> str:
    task, added = feedback.create(NewTask("A task", **settings), PAIRS if items is None else items)
    assert not added.problems
    return task.id


def answer(feedback: Feedback, task: str, name: str, turn: Turn, verdict: Any = "chosen", value: Any = 0, key: str = "") -> Turn:
    assert turn.shown is not None
    key = key or f"{name} {turn.shown.item.id} {turn.shown.attempt}"
    return feedback.vote(task, name, NewVote(key, turn.shown.item.id, verdict, value))


def answer_all(feedback: Feedback, task: str, name: str, value: Any = 0) -> list[int]:
    turn, seen = feedback.turn(task, name), []
    while turn.shown is not None:
        seen.append(turn.shown.item.id)
        turn = answer(feedback, task, name, turn, value=value)
    return seen


def test_a_workspace_without_feedback_is_empty_and_stays_untouched(feedback: Feedback, tmp_path: Path) -> None:
    assert feedback.tasks() == [] and feedback.waiting() == [] and feedback.known_rating_link() == ""
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Refused, match="no longer here"):
        feedback.task("task-x")


def test_an_answer_speaks_of_the_response_and_not_of_its_place(feedback: Feedback) -> None:
    """Everybody chooses the response that is called "first", wherever it stands."""
    task = task_with(feedback, annotators=8)
    places = Counter[int]()
    for name in (f"n{number}" for number in range(8)):
        turn = feedback.turn(task, name)
        while turn.shown is not None:
            place = turn.shown.order.index(0)
            places[place] += 1
            turn = answer(feedback, task, name, turn, value=place)
    votes = feedback.votes(task)
    assert len(votes) == 48 and {vote.value for vote in votes} == {0}
    assert all(vote.shown[0] in (0, 1) for vote in votes) and 12 <= places[0] <= 36, "the order is drawn"


def test_each_item_goes_to_so_many_people_and_to_each_once(feedback: Feedback) -> None:
    task = task_with(feedback, annotators=2)
    found = {name: answer_all(feedback, task, name) for name in ("Anna", "Ben", "Chi")}
    assert len(found["Anna"]) == len(found["Ben"]) == 6 and found["Chi"] == []
    assert feedback.turn(task, "Chi").state == "done"
    assert feedback.progress(task).done == 6


def test_people_who_ask_at_once_get_different_items(feedback: Feedback, tmp_path: Path) -> None:
    """Six items for one annotator each: six people at once get six different ones, and a seventh gets none until a lease runs out."""
    task = task_with(feedback)
    got: dict[str, Any] = {}

    def ask(name: str) -> None:
        other = Feedback(tmp_path)  # as another process of the same workspace would
        got[name] = other.turn(task, name).shown
        other.close()

    threads = [threading.Thread(target=ask, args=(f"n{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({shown.item.id for shown in got.values()}) == 6
    assert feedback.turn(task, "late").shown is None
    assert feedback.turn(task, "n3").shown.item.id == got["n3"].item.id, "a page that is loaded again shows the same"  # type: ignore[union-attr]


def test_a_lease_runs_out_and_a_late_answer_still_counts(feedback: Feedback, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_with(feedback, PAIRS[:1])
    slow = feedback.turn(task, "slow")
    monkeypatch.setattr(turns.time, "time", lambda now=turns.time.time: now() + turns.LEASE_SECONDS + 1)
    assert answer(feedback, task, "quick", feedback.turn(task, "quick")).state == "done"
    answer(feedback, task, "slow", slow)
    assert sorted(vote.annotator for vote in feedback.votes(task)) == ["quick", "slow"]
    assert feedback.progress(task).done == 1


def test_the_same_answer_sent_again_counts_once(feedback: Feedback) -> None:
    task = task_with(feedback, annotators=3)
    turn = feedback.turn(task, "Anna")
    after = answer(feedback, task, "Anna", turn, key="one")
    again = answer(feedback, task, "Anna", turn, value=1, key="one")
    assert again.shown == after.shown and again.progress == after.progress
    assert len(feedback.votes(task)) == 1
    with pytest.raises(Refused, match="name of another one"):
        feedback.vote(task, "Ben", NewVote("one", turn.shown.item.id, "tie"))  # type: ignore[union-attr]
    with pytest.raises(Refused, match="answered this one already"):
        answer(feedback, task, "Anna", turn, key="two")  # the second of two tabs
    assert len(feedback.votes(task)) == 1


def test_undo_gives_the_item_back_and_only_the_last_one(feedback: Feedback) -> None:
    task = task_with(feedback, annotators=1)
    first = feedback.turn(task, "Anna")
    second = answer(feedback, task, "Anna", first, key="one")
    third = answer(feedback, task, "Anna", second, key="two")
    with pytest.raises(Refused, match="Only your last"):
        feedback.undo(task, "Anna", "one")
    with pytest.raises(Refused, match="no such answer of yours"):
        feedback.undo(task, "Ben", "two")
    back = feedback.undo(task, "Anna", "two")
    assert back.shown == second.shown and back.may_undo == "one" and third.may_undo == "two"
    assert feedback.undo(task, "Anna", "two").shown == second.shown, "twice is once"
    assert [vote.id for vote in feedback.votes(task)] == ["one"] and feedback.progress(task).votes == 1
    assert len(answer_all(feedback, task, "Anna")) == 5 and feedback.progress(task).done == 6


def test_a_skip_is_kept_but_leaves_the_item_for_others(feedback: Feedback) -> None:
    task = task_with(feedback, PAIRS[:1])
    assert answer(feedback, task, "Anna", feedback.turn(task, "Anna"), "skip", None).state == "done"
    assert feedback.progress(task).votes == 0
    assert feedback.turn(task, "Ben").state == "item"


def test_the_most_uncertain_comes_first(feedback: Feedback) -> None:
    items = [NewItem("p", (f"a{value}", "b"), uncertainty=value) for value in (0.1, 3.0, None, -2.0)]
    task = task_with(feedback, items, order="uncertainty")
    numbers = {item.id: item.uncertainty for item in feedback.items(task)}
    assert [numbers[item] for item in answer_all(feedback, task, "Anna")] == [3.0, 0.1, -2.0, None]
    task = task_with(feedback, PAIRS, order="uncertainty")
    ids = [item.id for item in feedback.items(task)]
    feedback.set_uncertainties(task, {ids[4]: 5.0, ids[2]: 7.0})
    assert answer_all(feedback, task, "Anna")[:3] == [ids[2], ids[4], ids[0]]


def test_the_round_with_known_answers_comes_first_and_is_repeated_until_it_is_passed(feedback: Feedback) -> None:
    known = [NewItem(f"known {number}", ("good", f"bad {number}"), answer=0, why="Good is better.") for number in range(4)]
    task = task_with(feedback, [*PAIRS[:1], *known], pass_mark=0.75)

    def go_round(right: int) -> Turn:
        turn = feedback.turn(task, "Anna")
        for place in range(4):
            assert turn.shown is not None and turn.shown.item.answer == 0
            correct = turn.shown.order.index(0)
            turn = answer(feedback, task, "Anna", turn, value=correct if place < right else 1 - correct)
            assert turn.expected == {"right": place < right, "why": "Good is better.", "answer": 0, "item": turn.expected["item"]}  # type: ignore[index]
        return turn

    failed = go_round(2)
    assert failed.state == "failed" and (failed.calibration.correct, failed.calibration.total) == (2, 4)
    assert feedback.begin_again(task, "Anna").calibration.attempt == 2
    passed = go_round(3)
    assert passed.state == "item" and passed.shown is not None and passed.shown.attempt == 0
    assert feedback.begin_again(task, "Anna").calibration.attempt == 2, "a round that was passed is not repeated"
    assert feedback.votes(task) == [] and len(feedback.votes(task, calibration=True)) == 8
    assert feedback.progress(task).items == 1
    assert feedback.turn(task, "Ben").calibration.attempt == 1, "each annotator has a round of their own"


@pytest.mark.parametrize(
    ("kind", "verdict", "value"),
    [
        ("pair", "chosen", 2), ("pair", "chosen", True), ("pair", "chosen", None), ("pair", "rating", 3), ("pair", "nonsense", 0),
        ("rating", "rating", 0), ("rating", "rating", 6), ("rating", "rating", 2.5), ("rating", "tie", None),
        ("ranking", "ranks", [1, 2]), ("ranking", "ranks", [2, 2, 3]), ("ranking", "ranks", [1, 2, 4]), ("ranking", "chosen", 0),
    ],
)  # fmt: skip
def test_answers_that_are_none(feedback: Feedback, kind: Any, verdict: Any, value: Any) -> None:
    responses = {"pair": ("a", "b"), "rating": ("a",), "ranking": ("a", "b", "c")}[kind]
    task = task_with(feedback, [NewItem("p", responses)], kind=kind)
    with pytest.raises(Refused, match="cannot be stored"):
        answer(feedback, task, "Anna", feedback.turn(task, "Anna"), verdict, value)
    assert feedback.votes(task) == []


@pytest.mark.parametrize(
    ("item", "wrong"),
    [
        (NewItem("p", ("a",)), "needs 2 responses, and this has 1"),
        (NewItem("p", ("a", "a")), "two responses are the same"),
        (NewItem("p", ("a", "  ")), "a response is empty"),
        (NewItem("p", ("a", "b"), uncertainty=float("nan")), "finite number"),
        (NewItem("p", ("a", "b"), answer=2), "does not fit"),
        (NewItem("p", ("a", "b"), sources=("x",)), "as many sources"),
    ],
)
def test_items_that_a_task_cannot_take_are_named(feedback: Feedback, item: NewItem, wrong: str) -> None:
    task, added = feedback.create(NewTask("t"), [PAIRS[0], item, PAIRS[1], PAIRS[0]])
    assert (added.added, added.repeated) == (2, 1)
    assert len(added.problems) == 1 and added.problems[0].startswith("Row 2: ") and wrong in added.problems[0]
    assert [one.number for one in feedback.items(task.id)] == [1, 2]


@pytest.mark.parametrize(
    "settings",
    [{"name": " "}, {"kind": "poem"}, {"annotators": 0}, {"points": 10}, {"pass_mark": 1.1}, {"order": "up"}, {"criterion": "x" * 201}],
)
def test_tasks_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        NewTask(**{"name": "t", **settings})


def test_any_text_survives(feedback: Feedback) -> None:
    texts = [text for text in NASTY_TEXTS if text.strip()]
    task = task_with(feedback, [NewItem(text, (text, "other")) for text in texts])
    assert [(item.prompt, item.responses[0]) for item in feedback.items(task)] == [(text, text) for text in texts]


def test_a_name_belongs_to_the_browser_that_used_it_first(feedback: Feedback) -> None:
    assert feedback.sign_in("  Anna  B ", "key of Anna") == "Anna B"
    assert feedback.sign_in("anna b", "key of Anna") == "Anna B"
    with pytest.raises(Refused, match="Somebody else uses this name"):
        feedback.sign_in("ANNA B", "key of Eve")
    assert feedback.sign_in("anna b", "", trusted=True) == "Anna B"
    for name in ("", " ", "x" * 41, "a\x00b"):
        with pytest.raises(Refused, match="name"):
            feedback.sign_in(name, "key of Anna")
    with pytest.raises(Refused, match="key of its own"):
        feedback.sign_in("New", "short")


def test_the_rating_link_stays_until_it_is_renewed(feedback: Feedback, tmp_path: Path) -> None:
    first = feedback.rating_link()
    assert Feedback(tmp_path).rating_link() == first == Feedback(tmp_path).known_rating_link() and len(first) >= 20
    assert feedback.rating_link(renew=True) != first


def test_changing_closing_and_deleting(feedback: Feedback) -> None:
    task = task_with(feedback, annotators=1)
    answer_all(feedback, task, "Anna")
    feedback.change(task, NewTask("Other", annotators=2, order="uncertainty"))
    assert feedback.progress(task).done == 0 and len(answer_all(feedback, task, "Ben")) == 6
    with pytest.raises(Refused, match="keeps its kind"):
        feedback.change(task, NewTask("Other", kind="rating"))
    feedback.set_open(task, False)
    assert feedback.turn(task, "Chi").state == "closed" and len(feedback.votes(task)) == 12
    feedback.delete(task)
    assert feedback.tasks() == [] and feedback.votes(task) == [] and feedback.items(task) == []


@pytest.mark.parametrize(
    "forged",
    [
        {"item": 10**30}, {"item": -1}, {"item": float("nan")}, {"item": True}, {"seconds": 10**400}, {"seconds": float("nan")},
        {"seconds": -1.0}, {"seconds": float("inf")}, {"confidence": 10**400}, {"confidence": float("nan")}, {"confidence": True},
    ],
)  # fmt: skip
def test_numbers_that_no_page_can_mean_are_no_answer(forged: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"number|no such item"):
        NewVote(**{"id": "x", "item": 1, "verdict": "tie", **forged})


def test_what_people_send_is_never_told_as_damage(feedback: Feedback) -> None:
    """Each reaches the store as a program may send it."""
    task = task_with(feedback)
    turn = feedback.turn(task, "Anna")
    for key, value in (("\ud800", 0), ("nul\0", 0), ("x", 10**400), ("x", [10**400]), ("x", {"a": 1}), ("x", float("nan"))):
        with pytest.raises(Refused):
            answer(feedback, task, "Anna", turn, value=value, key=key)
    with pytest.raises(Refused, match="answered this one already"):
        feedback.vote(task, "Anna", NewVote("x", 2**63 - 1, "tie"))
    assert "finite number" in feedback.add_items(task, [NewItem("p", ("c", "d"), uncertainty=10**400)]).problems[0]
    with pytest.raises(Refused, match="finite numbers"):
        feedback.set_uncertainties(task, {feedback.items(task)[0].id: 10**400})
    with pytest.raises(ValueError, match="more than 100,000 characters"):
        feedback.ask("r-0", "r", NewTask("t", kind="rating"), [NewItem("p", ("x" * 100_001,), step=1)], 1.0)
    assert [one.id for one in feedback.tasks()] == [task] and feedback.votes(task) == []


def test_another_scale_is_another_task(feedback: Feedback) -> None:
    """Ratings on one scale say nothing on another: people are asked anew, and the old ratings wait for the old scale."""
    items = [NewItem("p", ("a response",), step=1)]

    def asked(points: int) -> str:
        found = feedback.ask("run-0", "run", NewTask("t", kind="rating", points=points), items, 2e9)
        assert [task.id for task in feedback.waiting()] == [found.task]
        assert feedback.task(found.task).settings.points == points and list(found.items.values()) == [feedback.items(found.task)[0].id]
        return found.task

    first = asked(5)
    answer(feedback, first, "Anna", feedback.turn(first, "Anna"), "rating", 5)
    second = asked(9)
    assert feedback.ratings(second, 1, 1) == {}
    answer(feedback, second, "Anna", feedback.turn(second, "Anna"), "rating", 9)
    assert asked(5) == first and list(feedback.ratings(first, 1, 1).values()) == [[5]]
    assert asked(9) == second and list(feedback.ratings(second, 1, 1).values()) == [[9]]


def test_a_store_that_was_cut_off_says_so_everywhere(feedback: Feedback, tmp_path: Path) -> None:
    """What is left of it is not touched, so that it can still be mended."""
    task = task_with(feedback, [NewItem(f"p{number}", ("a" * 500, "b")) for number in range(100)])
    feedback.close()
    path = tmp_path / "people.db"
    size = path.stat().st_size
    for left in (size // 2, 4096, 100):
        path.write_bytes(path.read_bytes()[:left])
        before = path.read_bytes()
        for act in (feedback.tasks, lambda: feedback.turn(task, "Anna"), lambda: feedback.votes(task), feedback.known_rating_link):
            with pytest.raises(StoreError, match=r"people\.db is damaged") as told:
                act()
            assert told.value.reason == "damaged"
        feedback.close()
        assert path.read_bytes() == before


def test_a_store_that_may_not_be_written_can_be_read(feedback: Feedback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_with(feedback)
    turn = feedback.turn(task, "Anna")
    answer(feedback, task, "Anna", turn)
    feedback.close()
    connect = schema.connect

    monkeypatch.setattr(schema, "connect", lambda path, read_only=False, **more: connect(path, True))
    for act in (lambda: feedback.turn(task, "Anna"), lambda: feedback.sign_in("Ben", "key of Ben"), lambda: feedback.set_open(task, False)):
        with pytest.raises(StoreError, match=r"people\.db may not be written or opened"):
            act()
    assert len(feedback.votes(task)) == 1 and feedback.progress(task).votes == 1


def test_a_store_that_was_moved_away_begins_anew(feedback: Feedback, tmp_path: Path) -> None:
    task_with(feedback)
    for file in tmp_path.glob("people.db*"):
        file.rename(tmp_path / f"old-{file.name}")
    assert feedback.tasks() == []
    task_with(feedback)
    assert len(feedback.tasks()) == 1


# --- JSON Lines ---------------------------------------------------------------------------------------------------------------------


def items_of(lines: list[str], kind: Any = "pair", **options: int) -> tuple[list[NewItem], list[str]]:
    """(the items, what is wrong) of JSON Lines."""
    read = list(read_lines(lines, NewTask("t", kind=kind), **options))
    return [item for row in read for item in row.items], [row.problem for row in read if row.problem]


def test_rows_of_every_shape() -> None:
    rows = [
        {"prompt": "p", "responses": ["a", "b"], "sources": ["x", "y"], "uncertainty": 2},
        {"prompt": "p", "chosen": "a", "rejected": "b"},
        {"prompt": "p", "chosen": "a", "rejected": "b", "calibration": True, "why": "because"},
        {"prompt": [{"role": "user", "content": "Hello"}], "response_a": "a", "response_b": [{"role": "assistant", "content": "b"}]},
        {"responses": ["a", "b"], "answer": "tie"},
    ]
    items, problems = items_of([json.dumps(row) for row in rows])
    assert problems == []
    assert [item.responses for item in items] == [("a", "b")] * 5
    assert items[0].sources == ("x", "y") and items[0].uncertainty == 2
    assert [item.answer for item in items] == [None, None, 0, None, "tie"] and items[2].why == "because"
    assert items[3].prompt == "Hello" and items[4].prompt == ""
    rated, _ = items_of([json.dumps(rows[0])], "rating")
    assert [(item.responses, item.sources) for item in rated] == [(("a",), ("x",)), (("b",), ("y",))]


def test_only_a_row_that_says_what_is_right_has_a_known_answer() -> None:
    """Of ``response_a`` and ``response_b`` nobody has said which is better: such a row is told, and is no item with an invented answer."""
    named = [json.dumps({"prompt": f"p{number}", "chosen": "good", "rejected": "bad"}) for number in range(3)]
    own = json.dumps({"response_a": "bad", "response_b": "good", "answer": 1})
    silent = json.dumps({"response_a": "bad", "response_b": "good"})
    items, problems = items_of([silent, own, *named], known=3)
    assert [(item.prompt, item.answer) for item in items] == [("", 1), ("p0", 0), ("p1", None), ("p2", None)]
    assert problems == [
        "Row 1: it is one of the first rows with a known answer, but nothing in it says which answer is right; "
        "give it chosen and rejected, or answer."
    ]
    for kind, row in (
        ("pair", {"responses": ["a", "b"]}),
        ("ranking", {"chosen": "a", "rejected": "b"}),
        ("rating", {"response": "a"}),
        ("pair", {"chosen": "a", "rejected": "b", "calibration": "yes"}),
    ):
        items, problems = items_of([json.dumps({"calibration": True, **row})], kind)
        assert items == [] and "calibration " in problems[0], row


def test_the_first_rows_are_counted_as_rows() -> None:
    """A row that cannot be used, and one that is blank, move no known answer to a later row."""
    good = [json.dumps({"prompt": f"p{number}", "chosen": "good", "rejected": "bad"}) for number in range(4)]
    known = [[item.prompt for item in items_of(lines, known=2, **more)[0] if item.answer == 0] for lines, more in (
        (["garbage", *good], {}), (["", "", *good], {}), (good, {"first": 2}), (good, {"first": 9, "rows_before": 0}),
    )]  # fmt: skip
    assert known == [["p0"], ["p0", "p1"], ["p0"], ["p0", "p1"]]


def test_problems_name_the_rows_of_the_file(feedback: Feedback) -> None:
    bad = [{"prompt": "p", "chosen": "x", "rejected": "x"}, {"prompt": "p", "chosen": "", "rejected": "x"}]
    _, problems = items_of(["", "", "not json", json.dumps(bad[0]), "", json.dumps(bad[1])])
    assert [text.split(":")[0] for text in problems] == ["Row 3", "Row 4", "Row 6"]
    rated = [json.dumps({"prompt": "p", "responses": ["a", "b", last]}) for last in ("c", "d", "")]
    items, problems = items_of(rated, "rating")
    assert problems == ["Row 3: a response is empty."] and len(items) == 6
    task = task_with(feedback)
    added = feedback.add_items(task, [PAIRS[0], NewItem("p", ("a", "a")), NewItem("q", ("a", "a"))], [7, 7, 30])
    assert added.repeated == 1 and [text.split(":")[0] for text in added.problems] == ["Row 7", "Row 30"]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("nonsense", "not JSON"), ("[1]", "not an object"), ('{"prompt": "p", "text": "x"}', "has the columns prompt, text; it needs"),
        ('{"responses": "a"}', "responses must be a list"), ('{"chosen": 1, "rejected": "b"}', "chosen must be a text"),
        ('{"response": "a", "uncertainty": "high"}', "uncertainty must be a number"), ("[" * 100_000, "not JSON"),
        *((f'{{"responses": ["a", "b"], "uncertainty": {number}}}', "finite number") for number in ("1e999", "NaN", "1" + "0" * 400)),
        (json.dumps({"responses": ["a", "b"], "answer": "z" * 800_000}), "does not fit"),
        (json.dumps({f"column {number}": 1 for number in range(5000)}), "has the columns"),
    ],
)  # fmt: skip
def test_rows_that_are_none_are_named(line: str, wrong: str) -> None:
    items, problems = items_of(["", line], first=10)
    assert items == [] and len(problems) == 1 and problems[0].startswith("Row 11: ") and wrong in problems[0]
    assert len(problems[0]) < 800, "what somebody sent is not told back at length"


def test_exported_pairs_have_the_usual_columns(feedback: Feedback) -> None:
    task = task_with(feedback, [NewItem("p", ("good", "bad"), sources=("run a", "run b"))], annotators=3, criterion="polite")
    for name, verdict, confidence in (("Anna", "chosen", 1.0), ("Ben", "tie", 0.5), ("Chi", "skip", 1.0)):
        turn = feedback.turn(task, name)
        assert turn.shown is not None
        place = turn.shown.order.index(1) if verdict == "chosen" else None
        feedback.vote(task, name, NewVote(name, turn.shown.item.id, verdict, place, confidence))  # type: ignore[arg-type]
    rows = list(export_rows(feedback.task(task), feedback.items(task), feedback.votes(task)))
    same = {"prompt": "p", "criterion": "polite", "task": "A task", "item": 1, "both_bad": False, "seconds": 0.0}
    one = {"chosen": "bad", "rejected": "good", "tie": False, "chosen_source": "run b", "rejected_source": "run a"}
    other = {"chosen": "good", "rejected": "bad", "tie": True, "chosen_source": "run a", "rejected_source": "run b"}
    assert [{key: value for key, value in row.items() if key != "at"} for row in rows] == [
        {**same, **one, "confidence": 1.0, "annotator": "Anna"},
        {**same, **other, "confidence": 0.5, "annotator": "Ben"},
    ]
    (agreed,) = agreed_rows(feedback.task(task), feedback.items(task), feedback.votes(task))
    assert (
        agreed["chosen"] == "bad" and not agreed["tie"] and agreed["confidence"] == pytest.approx(1.0 / 1.5) and agreed["annotators"] == 2
    )


def test_equal_votes_are_rows_of_their_own_and_one_guess_stays_a_guess(feedback: Feedback) -> None:
    """Two against one: three rows by three people. Of a single answer the confidence is its own, for every kind."""
    task = task_with(feedback, [NewItem("p", ("a", "b"))], annotators=3)
    for name, response in (("Anna", 0), ("Ben", 0), ("Chi", 1)):
        turn = feedback.turn(task, name)
        answer(feedback, task, name, turn, value=turn.shown.order.index(response))  # type: ignore[union-attr]
    rows = list(export_rows(feedback.task(task), feedback.items(task), feedback.votes(task)))
    assert sorted((row["annotator"], row["chosen"]) for row in rows) == [("Anna", "a"), ("Ben", "a"), ("Chi", "b")]
    (agreed,) = agreed_rows(feedback.task(task), feedback.items(task), feedback.votes(task))
    assert (agreed["chosen"], agreed["confidence"], agreed["annotators"]) == ("a", pytest.approx(2 / 3), 3)
    for kind, responses, verdict, value in (
        ("pair", ("a", "b"), "chosen", 0), ("pair", ("a", "b"), "both_bad", None), ("rating", ("a",), "rating", 4),
        ("ranking", ("a", "b"), "ranks", [2, 1]),
    ):  # fmt: skip
        task = task_with(feedback, [NewItem("p", responses)], kind=kind)
        turn = feedback.turn(task, "Anna")
        feedback.vote(task, "Anna", NewVote(task, turn.shown.item.id, verdict, value, 0.5))  # type: ignore[union-attr,arg-type]
        (agreed,) = agreed_rows(feedback.task(task), feedback.items(task), feedback.votes(task))
        assert agreed["confidence"] == 0.5, kind


def test_nobody_is_sure_who_did_not_say_so(feedback: Feedback) -> None:
    """Where nobody said it there is no column; in the vote of most, who did not say it counts like one who is sure."""
    task = task_with(feedback, [NewItem("p", ("a", "b"))], annotators=3)

    def exported() -> tuple[list[dict[str, Any]], dict[str, Any]]:
        about = feedback.task(task), feedback.items(task), feedback.votes(task)
        (agreed,) = agreed_rows(*about)
        return list(export_rows(*about)), agreed

    for name, response, confidence in (("Anna", 0, None), ("Ben", 1, 0.5)):
        turn = feedback.turn(task, name)
        place = turn.shown.order.index(response)  # type: ignore[union-attr]
        feedback.vote(task, name, NewVote(name, turn.shown.item.id, "chosen", place, confidence))  # type: ignore[union-attr]
        rows, agreed = exported()
        if name == "Anna":
            assert "confidence" not in rows[0] and agreed["confidence"] == 1.0
    assert [row["confidence"] for row in rows] == [None, 0.5] and agreed["chosen"] == "a"
    assert agreed["confidence"] == pytest.approx(1 / (1 + 0.5))
    ratings = task_with(feedback, [NewItem("p", ("a",))], kind="rating")
    answer(feedback, ratings, "Anna", feedback.turn(ratings, "Anna"), "rating", 4)
    (agreed,) = agreed_rows(feedback.task(ratings), feedback.items(ratings), feedback.votes(ratings))
    assert agreed["rating"] == 4 and "confidence" not in agreed


def test_rankings_become_pairs_and_means() -> None:
    assert pairs_of_ranks([2, 1, 2]) == {(0, 1): 1, (0, 2): 0, (1, 2): -1}


# --- killed at any moment -----------------------------------------------------------------------------------------------------------

VOTER = """
import sys
from pathlib import Path
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.feedback.records import NewVote
feedback, task, name = Feedback(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
turn, number = feedback.turn(task, name), 0
while turn.shown:
    key, item = f"{name} {turn.shown.item.id}", turn.shown.item.id
    turn = feedback.vote(task, name, NewVote(key, item, "chosen", 0))
    print(key, flush=True)
"""


def test_what_was_answered_survives_a_kill(feedback: Feedback, tmp_path: Path) -> None:
    """Two processes vote and are killed after some answers: all that they reported is there, once, and others can go on."""
    task = task_with(feedback, [NewItem(f"p{number}", ("a", "b")) for number in range(400)], annotators=2)
    command = [sys.executable, "-c", VOTER, str(tmp_path), task]
    voters = {
        name: subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True, env=python_environment(), cwd=REPOSITORY)
        for name in ("Anna", "Ben")
    }
    reported = []
    draw = random.Random(0)
    for process in voters.values():
        assert process.stdout is not None
        reported += [process.stdout.readline().strip() for _ in range(draw.randint(5, 40))]
        process.send_signal(signal.SIGKILL)
        reported += process.stdout.read().split("\n")[:-1]
        process.wait(20)
    stored = [vote.id for vote in feedback.votes(task)]
    assert len(reported) >= 10 and set(filter(None, reported)) <= set(stored)
    assert len(stored) - len(set(reported)) <= 2, "at most the one of each that was stored before it could be reported"
    assert len(stored) == len(set(stored))
    counted = {item.id: item.votes for item in feedback.items(task)}
    assert Counter(vote.item for vote in feedback.votes(task)) == {item: count for item, count in counted.items() if count}
    assert feedback.turn(task, "Anna").state == "item"
