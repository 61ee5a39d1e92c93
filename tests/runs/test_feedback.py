"""The store of human feedback: who gets what, answers that count once, and nothing lost; and what a program that votes cannot do."""

from __future__ import annotations

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
from rlhf_studio.runs.feedback import tasks, turns
from rlhf_studio.runs.feedback.records import NewItem, NewTask, NewVote, Turn
from rlhf_studio.runs.feedback.store import Feedback, NotPossible
from tests.runs.feedback_helpers import PAIRS, answer, task_with
from tests.runs.store_helpers import NASTY_TEXTS, REPOSITORY, python_environment


def answer_all(feedback: Feedback, task: str, name: str, value: Any = 0) -> list[int]:
    turn, items = feedback.turn(task, name), []
    while turn.shown is not None:
        items.append(turn.shown.item.id)
        turn = answer(feedback, task, name, turn, value=value)
    return items


def test_a_workspace_without_feedback_is_empty_and_stays_untouched(feedback: Feedback, tmp_path: Path) -> None:
    assert feedback.tasks() == [] and feedback.waiting() == [] and feedback.known_rating_link() == ""
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotPossible, match="no longer here"):
        feedback.task("task-x")


def test_an_answer_speaks_of_the_response_and_not_of_its_place(feedback: Feedback) -> None:
    """Everybody chooses the response that is called "first", wherever it stands."""
    task = task_with(feedback, annotators=8)
    positions = Counter[int]()
    for name in (f"n{number}" for number in range(8)):
        turn = feedback.turn(task, name)
        while turn.shown is not None:
            position = turn.shown.order.index(0)
            positions[position] += 1
            turn = answer(feedback, task, name, turn, value=position)
    votes = feedback.votes(task)
    assert len(votes) == 48 and {vote.value for vote in votes} == {0}
    assert all(vote.shown[0] in (0, 1) for vote in votes) and 12 <= positions[0] <= 36, "the order is drawn"


def test_each_item_goes_to_so_many_people_and_to_each_once(feedback: Feedback) -> None:
    task = task_with(feedback, annotators=2)
    answered = {name: answer_all(feedback, task, name) for name in ("Anna", "Ben", "Chi")}
    assert len(answered["Anna"]) == len(answered["Ben"]) == 6 and answered["Chi"] == []
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
    with pytest.raises(NotPossible, match="name of another one"):
        feedback.vote(task, "Ben", NewVote("one", turn.shown.item.id, "tie"))  # type: ignore[union-attr]
    with pytest.raises(NotPossible, match="answered this one already"):
        answer(feedback, task, "Anna", turn, key="two")  # the second of two tabs
    assert len(feedback.votes(task)) == 1


def test_undo_gives_the_item_back_and_only_the_last_one(feedback: Feedback) -> None:
    task = task_with(feedback, annotators=1)
    first = feedback.turn(task, "Anna")
    second = answer(feedback, task, "Anna", first, key="one")
    third = answer(feedback, task, "Anna", second, key="two")
    with pytest.raises(NotPossible, match="Only your last"):
        feedback.undo(task, "Anna", "one")
    with pytest.raises(NotPossible, match="no such answer of yours"):
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


def test_the_round_with_known_answers_comes_first_and_is_repeated_until_it_is_passed(feedback: Feedback) -> None:
    known = [NewItem(f"known {number}", ("good", f"bad {number}"), answer=0, why="Good is better.") for number in range(4)]
    task = task_with(feedback, [*PAIRS[:1], *known], pass_mark=0.75)

    def go_round(right: int) -> Turn:
        turn = feedback.turn(task, "Anna")
        for position in range(4):
            assert turn.shown is not None and turn.shown.item.answer == 0
            correct = turn.shown.order.index(0)
            turn = answer(feedback, task, "Anna", turn, value=correct if position < right else 1 - correct)
            assert turn.expected == {"right": position < right, "why": "Good is better.", "answer": 0, "item": turn.expected["item"]}  # type: ignore[index]
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
    with pytest.raises(NotPossible, match="cannot be stored"):
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
    assert [item.number for item in feedback.items(task.id)] == [1, 2]


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
    with pytest.raises(NotPossible, match="Somebody else uses this name"):
        feedback.sign_in("ANNA B", "key of Eve")
    assert feedback.sign_in("anna b", "", trusted=True) == "Anna B"
    for name in ("", " ", "x" * 41, "a\x00b"):
        with pytest.raises(NotPossible, match="name"):
            feedback.sign_in(name, "key of Anna")
    with pytest.raises(NotPossible, match="key of its own"):
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
    with pytest.raises(NotPossible, match="keeps its kind"):
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
        with pytest.raises(NotPossible):
            answer(feedback, task, "Anna", turn, value=value, key=key)
    with pytest.raises(NotPossible, match="answered this one already"):
        feedback.vote(task, "Anna", NewVote("x", 2**63 - 1, "tie"))
    assert "finite number" in feedback.add_items(task, [NewItem("p", ("c", "d"), uncertainty=10**400)]).problems[0]
    with pytest.raises(ValueError, match="more than 100,000 characters"):
        feedback.ask("r-0", "r", NewTask("t", kind="rating"), [NewItem("p", ("x" * 100_001,), step=1)], 1.0)
    assert [known.id for known in feedback.tasks()] == [task] and feedback.votes(task) == []


def test_another_scale_is_another_task(feedback: Feedback) -> None:
    """Ratings on one scale say nothing on another: people are asked anew, and the old ratings wait for the old scale."""
    items = [NewItem("p", ("a response",), step=1)]

    def task_of_scale(points: int) -> str:
        answered = feedback.ask("run-0", "run", NewTask("t", kind="rating", points=points), items, 2e9)
        assert [task.id for task in feedback.waiting()] == [answered.task]
        assert feedback.task(answered.task).settings.points == points
        assert list(answered.items.values()) == [feedback.items(answered.task)[0].id]
        return answered.task

    first = task_of_scale(5)
    answer(feedback, first, "Anna", feedback.turn(first, "Anna"), "rating", 5)
    second = task_of_scale(9)
    assert feedback.ratings(second, 1, 1) == {}
    answer(feedback, second, "Anna", feedback.turn(second, "Anna"), "rating", 9)
    assert task_of_scale(5) == first and list(feedback.ratings(first, 1, 1).values()) == [[5]]
    assert task_of_scale(9) == second and list(feedback.ratings(second, 1, 1).values()) == [[9]]


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
            with pytest.raises(StoreError, match=r"people\.db is damaged") as raised:
                act()
            assert raised.value.reason == "damaged"
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
        with process:
            reported += process.stdout.read().split("\n")[:-1]
    stored = [vote.id for vote in feedback.votes(task)]
    assert len(reported) >= 10 and set(filter(None, reported)) <= set(stored)
    assert len(stored) - len(set(reported)) <= 2, "at most the one of each that was stored before it could be reported"
    assert len(stored) == len(set(stored))
    counted = {item.id: item.votes for item in feedback.items(task)}
    assert Counter(vote.item for vote in feedback.votes(task)) == {item: count for item, count in counted.items() if count}
    assert feedback.turn(task, "Anna").state == "item"


# --- what comes to an end ---------------------------------------------------------------------------------------------------------


def made(root: Path, answer: int | None = None) -> tuple[Feedback, str]:
    feedback = Feedback(root)
    return feedback, feedback.create(NewTask("A task"), [NewItem("prompt", ("good", "bad"), answer=answer)])[0].id


def test_names_come_to_an_end_for_all_but_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_ANNOTATORS", 2)
    feedback, _ = made(tmp_path)
    for name in ("Anna", "Ben"):
        feedback.sign_in(name, f"the key of {name}")
    with pytest.raises(NotPossible, match="Too many people"):
        feedback.sign_in("Eve", "the key of Eve")
    assert feedback.sign_in("anna", "the key of Anna") == "Anna"
    assert feedback.sign_in("Olga", "", trusted=True) == "Olga"


def test_an_answer_is_taken_back_so_often_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_UNDONE", 2)
    feedback, task = made(tmp_path)
    for number in range(3):
        turn = feedback.turn(task, "Anna")
        assert turn.shown is not None
        feedback.vote(task, "Anna", NewVote(f"vote {number}", turn.shown.item.id, "chosen", 0))
        if number < 2:
            feedback.undo(task, "Anna", f"vote {number}")
    with pytest.raises(NotPossible, match="2 times already"):
        feedback.undo(task, "Anna", "vote 2")
    assert [vote.id for vote in feedback.votes(task)] == ["vote 2"]


def test_rounds_with_known_answers_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_ROUNDS", 2)
    feedback, task = made(tmp_path, answer=0)

    def fail(round_: int) -> str:
        shown = feedback.turn(task, "Anna").shown
        assert shown is not None
        return feedback.vote(task, "Anna", NewVote(f"vote {round_}", shown.item.id, "chosen", 1 - shown.order.index(0))).state

    assert fail(1) == "failed"
    assert feedback.begin_again(task, "Anna").calibration.attempt == 2
    assert fail(2) == "failed"
    with pytest.raises(NotPossible, match="2 rounds with known answers"):
        feedback.begin_again(task, "Anna")
