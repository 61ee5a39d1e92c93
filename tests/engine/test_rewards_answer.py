"""The right answer: what counts as the answer of a text, and when two answers are equal. All expected values are worked out by hand."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlhf_studio.config import AnswerReward, RewardConfig
from rlhf_studio.config_io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.answer import last_number, right_answers
from rlhf_studio.engine.rewards.scorer import RewardError, Scorer, build_scorer


def episodes(responses: list[str], references: list[str] | None) -> Episodes:
    count = len(responses)
    return Episodes(["why"] * count, responses, [True] * count, [1] * count, references)


def score(response: str, reference: str, **settings: Any) -> float:
    return right_answers(AnswerReward(**settings))(episodes([response], [reference])).scores.item()


# --- numbers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", None),
        ("no digits", None),
        ("She has 3 apples and 5 pears, 8 in all.", 8),
        ("#### 72", 72),
        ("It costs $1,234.50.", "1234.5"),
        ("1,234,567", 1234567),
        ("10\u202f000", 10000),
        ("10_000", 10000),
        ("12'500", 12500),
        ("1, 2, 3", 3),
        ("3,4", 4),  # no group of three digits: a list
        ("-3", -3),
        ("x = -3", -3),
        ("x=\u22123.5", "-3.5"),
        ("- 5 apples", 5),  # an item of a list
        ("10 - 4", 4),
        ("-$5", -5),
        ("+7", 7),
        ("5-3", 3),
        ("(2)-3", 3),
        ("9-10-2026", 2026),
        ("3/4", "3/4"),
        ("-3/4", "-3/4"),
        ("3 / 4", "3/4"),
        ("1 1/2", "3/2"),
        ("-1 1/2", "-3/2"),
        ("2 3/2", "3/2"),  # 3/2 is above 1, so it is no part of a mixed number
        ("\\frac{3}{4}", "3/4"),
        ("$-\\dfrac{1}{2}$", "-1/2"),
        ("\\frac{-3}{4}", "-3/4"),
        ("-\\frac{-3}{4}", "3/4"),
        ("\\frac12", "1/2"),
        ("1\\frac{1}{2}", "3/2"),
        ("2 \\frac12", "5/2"),
        ("1\\frac{-1}{2}", "-1/2"),
        ("\\boxed{42}", 42),
        ("10{,}000", 10000),
        ("10,\\!000", 10000),
        ("10\\,000", 10000),
        ("50%", 50),
        (".5", "1/2"),
        ("1e3", 1000),
        ("2.5E-1", "1/4"),
        ("3/0", None),
        ("1e", 1),
        ("9" * 5000, None),  # more digits than Python reads
        ("1e99999", None),
        ("so 1e999999.", None),
        ("-1e-1000 or so", None),
        ("1e" + "9" * 5000, None),
        ("2e999", 2 * 10**999),
        ("It is 6e23.", 6 * 10**23),
        ("1e3, then", 1000),
    ],
)
def test_the_last_number_of_a_text(text: str, number: Any) -> None:
    expected = None if number is None else Fraction(number)
    assert last_number(text) == expected


@given(st.integers(-(10**12), 10**12))
def test_a_number_is_read_however_it_is_written(number: int) -> None:
    for text in (
        str(number),
        f"{number:,}",
        f"{number:_}",
        f"so it is {number}.",
        f"{number}.0",
        f"{2 * number}/2",
        f"first 5, then {number}",
    ):
        assert last_number(text) == number


@given(st.text("0123456789.,/-+eE $\\frac{}_ ", max_size=60))
def test_any_text_has_a_last_number_or_none(text: str) -> None:
    found = last_number(text)
    assert found is None or isinstance(found, Fraction)


def test_long_texts_take_no_time() -> None:
    for text in ("1" * 50_000, "1," * 50_000, "1 " * 50_000, " " * 50_000 + "1", "1/" * 50_000, "\\frac{1}{" * 10_000, "1" + " " * 50_000):
        last_number(text)


def test_numbers_within_the_tolerance_are_equal() -> None:
    assert score("It is 0.3333333", "1/3") == 1.0
    assert score("It is 0.333", "1/3") == 0.0
    assert score("It is 0.333", "1/3", tolerance=0.001) == 1.0
    assert score("0.1", "0.10", tolerance=0.0) == 1.0
    assert score("0.3", "0.1", tolerance=0.2) == 1.0 or score("0.3", "0.1", tolerance=0.2000001) == 1.0
    assert score("72.5", "72", tolerance=0.5) == 1.0 and score("72.5001", "72", tolerance=0.5) == 0.0
    assert score("I do not know", "72") == 0.0


# --- texts -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "compare", "right"),
    [
        ("The answer: 1,000", "number", 1),
        ("The answer: 1,000", "exact", 0),
        ("The answer: 1,000", "regex", 0),  # 1,000 and 1000 are two texts
        ("The answer: 1000", "regex", 1),
        ("1000", "exact", 0),
        ("so the Answer: 1000", "exact", 0),
        ("Answer: 1000", "exact", 1),
    ],
)
def test_three_ways_to_compare(response: str, compare: str, right: float) -> None:
    assert score(response, "Answer: 1000", compare=compare, pattern=r"[Aa]nswer: (\S+)") == right


@pytest.mark.parametrize(
    ("response", "case", "space", "right"),
    [
        (" New   York\n", True, True, 1),
        (" New   York\n", True, False, 0),
        ("new york", True, False, 1),
        ("new york", False, True, 0),
        ("New\tYork", False, True, 1),
        ("NewYork", True, True, 0),
        ("", True, True, 0),
    ],
)
def test_case_and_white_space(response: str, case: bool, space: bool, right: float) -> None:
    settings = {"ignore_case": case, "ignore_space": space}
    assert score(response, "New York", compare="exact", **settings) == right
    boxed = {"compare": "regex", "pattern": r"<a>([^<]*)</a>"}
    assert score(f"so <a>{response}</a>.", "<a>New York</a>", **boxed, **settings) == right


def test_what_the_group_finds_last() -> None:
    settings = {"compare": "regex", "pattern": r"####\s*(.+)"}
    assert score("#### 5\nno, wait\n#### 7", "so 3 + 4\n#### 7", **settings) == 1.0
    assert score("#### 7\nno, wait\n#### 5", "so 3 + 4\n#### 7", **settings) == 0.0
    assert score("7", "#### 7", **settings) == 0.0  # the pattern is not in the response
    assert score("####  ", "#### 7", **settings) == 0.0
    assert score("<x>1</x> (?:)", "<x>1</x>", compare="regex", pattern=r"<(?:x|y)>(\d)") == 1.0


def test_the_reference_may_be_the_answer_itself() -> None:
    settings = {"compare": "regex", "reference_is": "answer"}
    assert score("Answer: Paris", "paris ", **settings) == 1.0
    assert score("Answer: Rome", "paris", **settings) == 0.0


@pytest.mark.parametrize(
    ("settings", "reference", "part"),
    [
        ({}, "seven", "no answer is found in the reference 'seven'"),
        ({"compare": "regex"}, "Paris", "the reference 'Paris'; set reference_is to answer when the column holds answers alone"),
    ],
)
def test_a_reference_without_an_answer_is_an_error(settings: dict[str, Any], reference: str, part: str) -> None:
    source = right_answers(AnswerReward(**settings))
    with pytest.raises(ComponentError, match=re.escape(part)) as caught:
        source(episodes(["7", "8"], ["Answer: 7", reference]))
    assert caught.value.row == 1


def test_a_costly_pattern_is_stopped() -> None:
    source = right_answers(AnswerReward(compare="regex", pattern="((?:a+)+)$", timeout=0.01))
    with pytest.raises(ComponentError, match=r"took longer than 0.01 s on a text") as caught:
        source(episodes(["a" * 5000 + "b"], ["a"]))
    assert caught.value.row == 0


def scorer_of(**settings: Any) -> Scorer:
    parsed = RewardConfig.model_validate({"components": [{"kind": "answer", **settings}]})
    return build_scorer(parsed, Compute(torch.device("cpu"), torch.float32), lambda text, fraction: None)


def test_patterns_that_cannot_be_used() -> None:
    for pattern, part in (("(", "not a valid regular expression"), ("a", "has 0 groups"), ("(a)(b)", "has 2 groups")):
        with pytest.raises(ConfigError, match=rf"reward.components.0.pattern: .*{part}"):
            scorer_of(compare="regex", pattern=pattern)


def test_each_response_is_compared_with_its_own_reference() -> None:
    scores = scorer_of()(episodes(["It is 2.", "It is 2."], ["2", "3"]))
    assert scores.raw.tolist() == [1.0, 0.0]
    with pytest.raises(RewardError, match=r"component answer: there are no reference texts .* data.reference_column"):
        scorer_of()(episodes(["1"], None))
