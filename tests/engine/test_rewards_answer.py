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
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.answer import right_answers
from rlhf_studio.engine.rewards.kinds.numbers import last_number, only_number
from rlhf_studio.engine.rewards.scorer import RewardError, Scorer, build_scorer


def episodes(responses: list[str], references: list[str] | None) -> Episodes:
    count = len(responses)
    return Episodes(["why"] * count, responses, [True] * count, [1] * count, references)


def score(response: str, reference: str, **settings: Any) -> float:
    return right_answers(AnswerReward(**settings))(episodes([response], [reference])).scores.item()


# --- numbers -----------------------------------------------------------------------------------------------------------------


NUMBERS = [
    ("She has 3 apples and 5 pears, 8 in all.", 8), ("#### 72", 72), ("It costs $1,234.50.", "1234.5"), ("1,234,567", 1234567),
    ("10\u202f000", 10000), ("10\u00a0000", 10000), ("10_000", 10000), ("12'500", 12500), ("12\u2019500", 12500), ("10{,}000", 10000),
    ("10,\\!000", 10000), ("10\\,000", 10000), ("1, 2, 3", 3), ("1 2 3", 3),
    ("in 1999 200 people", 200),  # four digits are no group of a number with spaces
    ("-3", -3), ("x = -3", -3), ("(-3)", -3), ("x=\u22123.5", "-3.5"), ("\uff0d3", -3), ("+7", 7),
    ("- 5 apples", 5),  # an item of a list
    ("10 -4", -4), ("-$5", -5), ("$-5", -5), ("$-5$", -5), ("-\\$42", -42), ("\\$-42", -42), ("-\u20ac5", -5), ("\u20ac-5", -5),
    ("-\u00a35", -5), ("\u2212\u00a35", -5), ("-\u00a55", -5), ("US$5", 5), ("3/4", "3/4"), ("-3/4", "-3/4"), ("3 / 4", "3/4"),
    ("1 1/2", "3/2"), ("-1 1/2", "-3/2"), ("1\u00bd", "3/2"), ("-1\u00bd", "-3/2"), ("\u00bd", "1/2"), ("\u00be", "3/4"),
    ("\u2153", "1/3"), ("\\frac{3}{4}", "3/4"), ("$-\\dfrac{1}{2}$", "-1/2"), ("\\frac{-3}{4}", "-3/4"), ("\\frac{1}{-2}", "-1/2"),
    ("-\\frac{-3}{4}", "3/4"), ("\\frac12", "1/2"), ("\\frac 1 2", "1/2"), ("1\\frac{1}{2}", "3/2"), ("-1\\frac{1}{2}", "-3/2"),
    ("2 \\frac12", "5/2"), ("\\boxed{42}", 42), ("\\boxed{-42}.", -42), ("\\left(5\\right)", 5), ("x \\approx5", 5),
    ("**Answer:** 5", 5), ("so **-5**.", -5), ("50%", 50), ("50\\%", 50), (".5", "1/2"), ("-.5", "-1/2"), ("5.", 5), ("5.\nThen", 5),
    ("007", 7), ("5kg", 5), ("60 km/h", 60), ("$5/hour", 5), ("5 - a good price", 5), ("- **5** apples", 5), ("|3|4|", 4),
    ("5 + 3=8", 8), ("it is 5!", 5), ("A:5,B:6", 6), ("25 cm^2", 25), ("25 m\u00b2", 25), ("90^\\circ", 90), ("1e3", 1000),
    ("2.5E-1", "1/4"), ("6.02e23", 602 * 10**21), ("10^5", 100000), ("10^{5}", 100000), ("10^{-2}", "1/100"), ("-10^5", -100000),
    ("3\u00d710^5", 300000), ("3 x 10^5", 300000), ("3\\times10^{5}", 300000), ("$3 \\times 10^{-1}$.", "3/10"),
    ("2.5 \\cdot 10^{2}", 250), ("1e400", 10**400), ("\uff14\uff12", 42), ("\u0664\u0662", 42), ("\u0663\u066b\u0665", "7/2"),
    ("\u7b54\u6848\u662f42", 42),
]  # fmt: skip

NO_NUMBERS = [
    "", "no digits", "1/0", "\\frac{1}{0}", "9" * 5000,
    # several numbers that hang together
    "5-3", "10 - 4", "10 + 4", "(2)-3", "9-10-2026", "2024-11-22", "3\u20135", "\u20135",
    "1/2/3", "1.2.3", "1..5", "12:30", "2 3/2", "1\\frac{-1}{2}",
    "1,2,3,4", "[1,2]", "2(3)", "3 \u00d7 5", "3*5", "2*x*5", "x * 5", "x / 2", "(a+b)/2", "5 + x", "\\binom{5}{2}",
    # commas, points and spaces that are no groups of three
    "3,14", "3,4", "1.234,56", "0,123", "1000,000", "1,0000", "1,23,456", "1,234'567", "1_0", "1 000 000", "10 200", "...5", "1\u202f23",
    # more than a plain number
    "5\u00b2", "10\u2075", "x^2", "5^2", "2^{10}", "(1/2)^3",
    "x_1", "x_{12}", "\\sqrt{2}", "\\sqrt 2", "\\sqrt[3]{8}", "2\\sqrt{2}", "\u221a2", "f(2)",
    "5\\pi", "2\u03c0", "2x", "3i", "5/x", "\\frac{x}{2}", "\\frac{2}{x}", "\\frac{\\sqrt{3}}{2}", "\\log_2", "\\frac{a}{b}",
    "1e9999", "1e401", "10^401", "1e99999", "10^{99999}", "1.5.e3", "0x1F", "H2O", "GPT-4",
    "10k", "5M", "3 million", "10 dozen",
    # a sign that could belong to it
    "--5", "- 5", "\u2212 5", "x = - 5", "x-3", "-(5)", "-\\boxed{5}", "-US$5", "-USD 5",
    "-\u20ac 5", "-$ 5", "\u2212$ 5", "- \u20ac 5", "minus 5", "negative 5", "Minus $5", "-\\,5", "{-}5", "|-5|", "= - (5)",
    "log_2 8", "\\log_2 8", "sin 30", "5\\theta", "5\u03b8", "5a", "5**n", "5 thousandths", "5 \\text{ million}",
    "3\u4e07", "5~6", "5 0000",
    "5e", "5\\,\\pi", "5\u00b7\u03c0", "5{\\pi}", "5(x)", "5\\left(x\\right)",
]  # fmt: skip


def test_the_last_number_of_a_text() -> None:
    frames = ("{}", "Of 17, so the value is\n{}")
    texts = [(frame.replace("{}", text), number) for text, number in NUMBERS for frame in frames]
    assert [text for text, number in texts if last_number(text) != Fraction(number)] == []


def test_what_is_no_plain_number_is_refused_whole() -> None:
    for text in NO_NUMBERS:
        framed = [f"Of 17, so the value is\n{text}", f"Of 17, so the value is\n{text}."]
        expected = 17 if text in ("", "no digits") else None
        assert [last_number(text), *map(last_number, framed)] == [None, expected, expected], text


DIGITS = st.integers(0, 10**12)


@given(DIGITS, st.integers(0, 999), st.sampled_from(["", "-", "\u2212", "+"]), st.sampled_from(["", "$", "\\$", "\u20ac", "\u00a3"]))
def test_a_decimal_is_read_however_it_is_written(whole: int, thousandths: int, sign: str, currency: str) -> None:
    size = Fraction(whole) + Fraction(thousandths, 1000)
    expected = -size if sign in ("-", "\u2212") else size
    for separator in ("", ",", "_", "'", "\u202f", "{,}"):
        digits = f"{whole:,}".replace(",", separator) + f".{thousandths:03}"
        for written in (f"{sign}{currency}{digits}", f"{currency}{sign}{digits}"):
            assert last_number(f"First 5, then it is {written}.") == expected
            assert only_number(f"It is {written} in all.") == expected
        assert last_number(f"It is {sign}{digits}e3, then") == expected * 1000
        assert last_number(f"It is ${sign}{digits} \\times 10^{{-2}}$.") == expected / 100


@given(st.integers(0, 10**6), st.integers(1, 999_999), st.integers(1, 999_999), st.sampled_from(["", "-", "\u2212"]))
def test_a_fraction_is_read_however_it_is_written(whole: int, over: int, under: int, sign: str) -> None:
    unit = -1 if sign else 1
    fractions = (f"{over}/{under}", f"{over} / {under}", f"\\frac{{{over}}}{{{under}}}", f"\\tfrac{{{over}}}{{{under}}}")
    for written in fractions:
        assert last_number(f"Of 5, that is {sign}{written}.") == unit * Fraction(over, under)
        expected = unit * (whole + Fraction(over, under)) if over < under else None
        assert last_number(f"that is {sign}{whole} {written}.") == expected
    assert last_number(f"$\\boxed{{{sign}{over}}}$") == unit * over


@given(st.text("0123456789.,/-+eEx^ $\\frac{}()_*\u00bd\u00b2", max_size=60))
def test_any_text_has_a_last_number_or_none(text: str) -> None:
    for read in (last_number, only_number):
        actual = read(text)
        assert actual is None or isinstance(actual, Fraction)


def test_the_time_grows_with_the_length_alone() -> None:
    """What would take the square of the length would take minutes here."""
    pieces = [
        "1,111,",
        "1",
        "1,",
        "1 ",
        " ",
        "1/",
        "\\frac{1}{",
        "1 1/",
        "1a",
        "a",
        "-",
        "1-",
        "-" * 50 + "1",
        "\\sqrt",
        "1 \\frac",
        "{",
        "$",
    ]
    for piece in pieces:
        text = piece * (180_000 // len(piece)) + "z 5"
        assert last_number(text) in (5, None) and only_number("\\boxed{" + text) in (5, None), piece


@pytest.mark.parametrize(
    ("reference", "number"),
    [
        ("72", 72), ("$72", 72), ("72 apples", 72), ("x = -3", -3), ("$\\frac{1}{2}$", "1/2"),
        ("She sold 48/2 = <<48/2=24>>24 in May.\n#### 72", 72), ("3 + 4 = 7, so \\boxed{\\frac{7}{2}}. See page 3.", "7/2"),
        ("3 + 4 = 7. The answer is $7$.", 7), ("**Answer:** 1,000", 1000),
    ],
)  # fmt: skip
def test_a_reference_is_one_number(reference: str, number: Any) -> None:
    assert only_number(reference) == Fraction(number)
    assert right_answers(AnswerReward())(episodes([f"so {number}"], [reference])).scores.item() == 1.0


@pytest.mark.parametrize(
    "reference",
    [
        "3 and 5", "3,14", "5\\pi", "x^2", "1e9999", "#### 3 or 5", "\\boxed{3,4}", "\\boxed{}", "-\\boxed{7}", "= - \\boxed{7}",
        "\\boxed{7}^2", "\\boxed{7", "2024-11-22", "3 + 4 = 7",
    ],
)  # fmt: skip
def test_a_reference_that_is_not_one_number_is_an_error(reference: str) -> None:
    with pytest.raises(ComponentError, match=re.escape(f"no single plain number is found in the reference {reference!r}")) as caught:
        right_answers(AnswerReward())(episodes(["5"], [reference]))
    assert caught.value.row == 0


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
        ("The answer: 1,000", "number", 1), ("The answer: 1,000", "exact", 0),
        ("The answer: 1,000", "regex", 0),  # 1,000 and 1000 are two texts
        ("The answer: 1000", "regex", 1), ("1000", "exact", 0), ("so the Answer: 1000", "exact", 0), ("Answer: 1000", "exact", 1),
    ],
)  # fmt: skip
def test_three_ways_to_compare(response: str, compare: str, right: float) -> None:
    assert score(response, "Answer: 1000", compare=compare, pattern=r"[Aa]nswer: (\S+)") == right


@pytest.mark.parametrize(
    ("response", "case", "space", "right"),
    [
        (" New   York\n", True, True, 1), (" New   York\n", True, False, 0), ("new york", True, False, 1), ("new york", False, True, 0),
        ("New\tYork", False, True, 1), ("NewYork", True, True, 0), ("", True, True, 0),
    ],
)  # fmt: skip
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
        ({}, "seven", "no single plain number is found in the reference 'seven'"),
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
