"""Items to rate from the answers of an evaluation: which answers meet, in which order, and what is left out."""

from __future__ import annotations

import math
from dataclasses import replace

from rlhf_studio.runs.evaluation.answers import Answer
from rlhf_studio.runs.feedback.exchange import items_of
from rlhf_studio.runs.feedback.records import MOST_RESPONSES
from tests.runs.test_answers import answer


def said(policy: str, place: int, draw: int, response: str, score: float = 0.0) -> Answer:
    return answer(0, policy, place=place, draw=draw, prompt=f"prompt {place}", response=response, score=score)


TWO = [
    said("start", 0, 0, "a", 1.0), said("start", 1, 0, "same"), said("start", 0, 1, "b", 3.0),
    said("trained", 0, 0, "c", 1.5), said("trained", 1, 0, "same"), said("trained", 0, 1, " "),
]  # fmt: skip


def test_two_policies_meet_in_answers_of_the_same_draw() -> None:
    items, left_out = items_of(TWO, "pair")
    assert [(item.prompt, item.responses, item.uncertainty) for item in items] == [("prompt 0", ("a", "c"), -0.5)]
    assert items[0].sources == ("start, answer 1", "trained, answer 1")
    assert left_out == 2  # equal ones, and one that is empty


def test_three_policies_meet_each_other() -> None:
    items, _ = items_of([said(name, 0, 0, name) for name in "xyz"], "pair")
    assert [item.responses for item in items] == [("x", "y"), ("x", "z"), ("y", "z")]


def test_the_draws_of_one_policy_meet_in_their_order() -> None:
    answers = [said("only", 4, draw, text) for draw, text in enumerate("abcde")]
    items, left_out = items_of(answers, "pair")
    assert [item.responses for item in items] == [("a", "b"), ("c", "d")] and left_out == 0
    assert items_of(answers[:1], "pair") == ([], 0)


def test_a_ranking_has_the_different_answers_and_a_rating_each() -> None:
    (one,), left_out = items_of(TWO, "ranking")
    assert one.responses == ("a", "b", "c") and one.uncertainty == -2.0 and left_out == 1
    many = [said("only", 0, draw, f"text {draw}") for draw in range(MOST_RESPONSES + 3)]
    assert len(items_of(many, "ranking")[0][0].responses) == MOST_RESPONSES
    items, left_out = items_of(TWO, "rating")
    assert [item.responses[0] for item in items] == ["a", "b", "c", "same", "same"] and left_out == 1
    assert all(item.uncertainty is None for item in items)


def test_an_ensemble_is_unsure_where_its_models_disagree_about_the_difference() -> None:
    """Two models: of the first pair both say that it differs by 2; of the second the one says 3, the other −1."""
    scores = {"a": (1.0, 5.0), "b": (-1.0, 3.0), "c": (3.0, 0.0), "d": (0.0, 1.0)}
    answers = [
        replace(said(policy, place, 0, text, sum(scores[text]) / 2), members={"judges": list(scores[text])})
        for policy, place, text in (("x", 0, "a"), ("y", 0, "b"), ("x", 1, "c"), ("y", 1, "d"))
    ]
    assert [item.uncertainty for item in items_of(answers, "pair")[0]] == [0.0, 2.0]
    assert [item.uncertainty for item in items_of(answers, "rating")[0]] == [2.0, 2.0, 1.5, 0.5]


def test_an_answer_without_a_score_says_nothing_of_how_sure_the_model_is() -> None:
    (item,), _ = items_of([said("x", 0, 0, "a", math.nan), said("y", 0, 0, "b", 1.0)], "pair")
    assert item.uncertainty is None
