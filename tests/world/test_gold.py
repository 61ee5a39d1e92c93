"""The gold reward on hand-worked texts, and its promise of a bounded value for any text."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_studio.inputs.world.corpus import write_corpus
from rlhf_studio.inputs.world.gold import HIGHEST, LOWEST, gold_score, join

PLOT = "The plot of this western"
GOOD = " is superb. The score is quite lively, and the cast lights up the screen. I loved every minute."
BAD = " is dreadful. The score is quite dull, and the cast ruins every scene. I want my money back."


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (GOOD, (1 + 0.6 + 1 + 1) / 4),
        (BAD, -(1 + 0.6 + 1 + 1) / 4),
        (" is superb.", 1 / 3),  # one opinion of three that a review has
        (" is superb. I loved every minute.", 2 / 3),
        (" is fresh. The score is stirring. The cast is warm.", 0.6),
        (" is superb", 0.0),  # fluent so far, nothing said yet
        ("", -1.0),
        (" .", -1.0),
        (" superb", -1.0),
        # 3 of 4 words and marks, no finished sentence: 0.75 * 0 - 0.25
        (" is superb, superb", -0.25),
        # the first sentence stands (3 of 3), the second breaks at its fifth word (4 of 7): 7/10 * 1/3 - 3/10
        (" is superb. The score is quite superb superb.", 0.7 / 3 - 0.3),
    ],
)
def test_hand_worked_values(response: str, expected: float) -> None:
    assert gold_score(PLOT, response) == pytest.approx(expected)


def test_only_the_response_earns() -> None:
    """A prompt that is no opening costs the first sentence, not more; a prompt full of praise earns nothing."""
    assert gold_score("Zebra zebra zebra", " is superb. I loved every minute.") == pytest.approx(5 / 8 * 1 / 3 - 3 / 8)
    assert gold_score(PLOT + GOOD, "") == -1.0


def test_over_optimised_texts_fall_step_by_step() -> None:
    """The more the pet word is repeated, the lower; and a shouting or stuttering review is worse than a calm one."""
    repeated = [gold_score(PLOT, GOOD + " A masterpiece." * times) for times in range(6)]
    assert repeated == sorted(repeated, reverse=True) and repeated[0] == 0.9 and repeated[5] < 0.2
    assert gold_score(PLOT, GOOD.replace(".", "!")) < 0.3
    assert gold_score(PLOT, GOOD.replace(".", "!!!")) < -0.3
    assert gold_score(PLOT, " superb" * 25) == -1.0
    assert gold_score(PLOT, GOOD.replace(" lively", " lively lively")) < 0.6


def test_reviews_of_the_grammar_spread_over_the_range() -> None:
    reviews = write_corpus(seed=23, size=600)
    gold = {sign: [gold_score(r.prompt, r.response) for r in reviews if r.sentiment == sign] for sign in (1, -1)}
    assert fmean(gold[1]) > 0.45 and fmean(gold[-1]) < -0.45
    assert max(gold[1]) > 0.95 and min(gold[-1]) < -0.95


def test_a_lost_space_is_put_back() -> None:
    assert gold_score(PLOT, GOOD.lstrip()) == gold_score(PLOT, GOOD)
    assert join("For a sequel,", " the plot") == "For a sequel, the plot"
    assert join("a", "b") == "a b" and join("a", ", b") == "a, b" and join("", "b") == "b" and join("a", "") == "a"


@given(st.text(), st.text())
def test_any_text_has_a_value_in_range(prompt: str, response: str) -> None:
    assert LOWEST <= gold_score(prompt, response) <= HIGHEST


def test_lone_surrogates_and_other_oddities() -> None:
    for text in ("\ud800", "\x00", "<b>x</b>", "x" * 30_000, "\u202e superb"):
        assert gold_score(text, text) == -1.0
