"""Feedback as JSON Lines, items in and answers out; completions put together; and items from the answers of an evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.evaluation.answers import Answer
from rlhf_studio.runs.feedback import exchange
from rlhf_studio.runs.feedback.exchange import agreed_rows, export_rows, pairs_of_ranks, read_lines
from rlhf_studio.runs.feedback.records import MOST_RESPONSES, Kind, NewItem, NewTask, NewVote
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.feedback.work import TaskWork
from tests.runs.feedback_helpers import PAIRS, answer, task_with
from tests.runs.test_answers import answer as evaluated


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
        position = turn.shown.order.index(1) if verdict == "chosen" else None
        feedback.vote(task, name, NewVote(name, turn.shown.item.id, verdict, position, confidence))  # type: ignore[arg-type]
    rows = list(export_rows(feedback.task(task), feedback.items(task), feedback.votes(task)))
    same = {"prompt": "p", "criterion": "polite", "task": "A task", "item": 1, "both_bad": False, "seconds": 0.0}
    first = {"chosen": "bad", "rejected": "good", "tie": False, "chosen_source": "run b", "rejected_source": "run a"}
    second = {"chosen": "good", "rejected": "bad", "tie": True, "chosen_source": "run a", "rejected_source": "run b"}
    assert [{key: value for key, value in row.items() if key != "at"} for row in rows] == [
        {**same, **first, "confidence": 1.0, "annotator": "Anna"},
        {**same, **second, "confidence": 0.5, "annotator": "Ben"},
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
        position = turn.shown.order.index(response)  # type: ignore[union-attr]
        feedback.vote(task, name, NewVote(name, turn.shown.item.id, "chosen", position, confidence))  # type: ignore[union-attr]
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


# --- completions, as the command generate writes them -----------------------------------------------------------------------------


Found = tuple[list[tuple[str, ...]], list[str]]


def row(prompt: str, completion: str, draw: int = 0) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion, "draw": draw, "length": 3, "stopped": True}


def put_together(rows: Sequence[dict[str, Any]], kind: Kind, **options: int) -> Found:
    """((prompt, each response) of the items, what is told)."""
    read = list(read_lines([json.dumps(values) for values in rows], NewTask("t", kind=kind), **options))
    return [(item.prompt, *item.responses) for entry in read for item in entry.items], [entry.problem for entry in read if entry.problem]


DRAWN = [row("p", "a"), row("p", "b", 1), row("q", "c"), row("p", "d", 2), row("q", "e", 1), row("p", "f", 3), row("q", "g", 2)]
ALONE = "1 completion left out: nothing with the same prompt is left to compare with."


def test_completions_of_one_prompt_are_put_together_wherever_they_stand() -> None:
    assert put_together(DRAWN, "pair") == ([("p", "a", "b"), ("q", "c", "e"), ("p", "d", "f")], [ALONE])
    assert put_together(DRAWN[:-1], "ranking") == ([("p", "a", "b", "d", "f"), ("q", "c", "e")], [])
    assert put_together(DRAWN[:2], "rating") == ([("p", "a"), ("p", "b")], [])
    lists = [{"prompt": "p", "completions": ["a", "b", "d"]}, {"prompt": "p", "completions": ["f"]}]
    assert put_together(lists, "pair") == ([("p", "a", "b"), ("p", "d", "f")], [])


def test_what_becomes_no_item_is_counted() -> None:
    rows = [row("p", "a"), row("p", "a"), row("p", "b"), row("p", " "), row("p", "c"), row("q", "d")]
    alike = "4 completions left out: empty, or the same as the one beside it."
    assert put_together(rows, "pair") == ([], [ALONE.replace("1 completion", "2 completions"), alike])
    assert put_together(rows, "ranking") == ([("p", "a", "b", "c")], [ALONE, alike.replace("4", "2")])
    many, notes = put_together([row("p", str(number)) for number in range(11)], "ranking")
    assert many == [("p", *map(str, range(9)))] and notes == ["2 completions left out: a ranking has at most 9 responses."]


@pytest.mark.parametrize(
    ("rows", "options", "wrong"),
    [
        ([{"completion": "a"}], {}, "Row 1: a completion needs its prompt"),
        ([{"prompt": "p", "completion": 3}], {}, "Row 1: completion must be a text"),
        ([{"prompt": "p", "completion": "a", "completions": ["b"]}], {}, "Row 1: has completion and completions"),
        ([{"prompt": "p", "completions": ["a", "b"], "answer": 0}], {}, "Row 1: completions have no known answer"),
        ([{"prompt": "p", "completions": ["a", "b"]}], {"known": 1}, "Row 1: it is one of the first rows with a known answer, but"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used_are_named(rows: list[dict[str, Any]], options: dict[str, int], wrong: str) -> None:
    items, (problem,) = put_together(rows, "pair", **options)
    assert items == [] and problem.startswith(wrong)


def test_the_file_of_generate_becomes_a_task(tmp_path: Path) -> None:
    file = tmp_path / "responses.jsonl"
    file.write_text("".join(json.dumps(values) + "\n" for values in DRAWN), encoding="utf-8")
    feedback = Feedback(tmp_path)
    work = TaskWork(feedback, Workspace(tmp_path))
    for kind, count, problems in (("pair", 3, [ALONE]), ("ranking", 2, []), ("rating", 7, [])):
        task, _ = feedback.create(NewTask("t", kind=kind))  # type: ignore[arg-type]
        assert work.add({"task": task.id, "path": str(file)}) == {"added": count, "repeated": 0, "problems": problems}
        assert feedback.progress(task.id).items == count


# --- the answers of an evaluation -------------------------------------------------------------------------------------------------


def answer_of(policy: str, position: int, draw: int, response: str, score: float = 0.0) -> Answer:
    return evaluated(0, policy, place=position, draw=draw, prompt=f"prompt {position}", response=response, score=score)


TWO = [
    answer_of("start", 0, 0, "a", 1.0), answer_of("start", 1, 0, "same"), answer_of("start", 0, 1, "b", 3.0),
    answer_of("trained", 0, 0, "c", 1.5), answer_of("trained", 1, 0, "same"), answer_of("trained", 0, 1, " "),
]  # fmt: skip


def test_two_policies_meet_in_answers_of_the_same_draw() -> None:
    items, left_out = exchange.items_of(TWO, "pair")
    assert [(item.prompt, item.responses, item.uncertainty) for item in items] == [("prompt 0", ("a", "c"), -0.5)]
    assert items[0].sources == ("start, answer 1", "trained, answer 1")
    assert left_out == 2  # equal ones, and one that is empty


def test_three_policies_meet_each_other() -> None:
    items, _ = exchange.items_of([answer_of(name, 0, 0, name) for name in "xyz"], "pair")
    assert [item.responses for item in items] == [("x", "y"), ("x", "z"), ("y", "z")]


def test_the_draws_of_one_policy_meet_in_their_order() -> None:
    answers = [answer_of("only", 4, draw, text) for draw, text in enumerate("abcde")]
    items, left_out = exchange.items_of(answers, "pair")
    assert [item.responses for item in items] == [("a", "b"), ("c", "d")] and left_out == 0
    assert exchange.items_of(answers[:1], "pair") == ([], 0)


def test_a_ranking_has_the_different_answers_and_a_rating_each() -> None:
    (item,), left_out = exchange.items_of(TWO, "ranking")
    assert item.responses == ("a", "b", "c") and item.uncertainty == -2.0 and left_out == 1
    many = [answer_of("only", 0, draw, f"text {draw}") for draw in range(MOST_RESPONSES + 3)]
    assert len(exchange.items_of(many, "ranking")[0][0].responses) == MOST_RESPONSES
    items, left_out = exchange.items_of(TWO, "rating")
    assert [item.responses[0] for item in items] == ["a", "b", "c", "same", "same"] and left_out == 1
    assert all(item.uncertainty is None for item in items)


def test_an_ensemble_is_unsure_where_its_models_disagree_about_the_difference() -> None:
    """Two models: of the first pair both say that it differs by 2; of the second the one says 3, the other −1."""
    scores = {"a": (1.0, 5.0), "b": (-1.0, 3.0), "c": (3.0, 0.0), "d": (0.0, 1.0)}
    answers = [
        replace(answer_of(policy, position, 0, text, sum(scores[text]) / 2), members={"judges": list(scores[text])})
        for policy, position, text in (("x", 0, "a"), ("y", 0, "b"), ("x", 1, "c"), ("y", 1, "d"))
    ]
    assert [item.uncertainty for item in exchange.items_of(answers, "pair")[0]] == [0.0, 2.0]
    assert [item.uncertainty for item in exchange.items_of(answers, "rating")[0]] == [2.0, 2.0, 1.5, 0.5]


def test_an_answer_without_a_score_says_nothing_of_how_sure_the_model_is() -> None:
    (item,), _ = exchange.items_of([answer_of("x", 0, 0, "a", math.nan), answer_of("y", 0, 0, "b", 1.0)], "pair")
    assert item.uncertainty is None
