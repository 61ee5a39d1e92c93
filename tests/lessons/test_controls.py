"""Controls that a run makes: which values they have, and which one they take."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.lessons import answers
from rlhf_studio.lessons.kit import CannotAsk, Choice, FromRun, Listed, Scene, Slider, Toggle, Word, around
from rlhf_studio.lessons.kit.pictures import Token, tokens

STEPS = FromRun("step", lambda needed, _: Listed("step", needed["run"], needed["run"][-1]), shared=True, fixed=True)
BELOW = FromRun("below", lambda needed, chosen: Listed("below", range(chosen["step"]), 0))


def two(run: list[int], step: int, below: int) -> dict[str, Any]:
    if step == 9:
        raise CannotAsk("Nothing is known of step 9.")
    return {"sum": step + below}


SCENE = Scene("two", two, controls=(STEPS, BELOW), needs=("run",))


@pytest.mark.parametrize(
    ("control", "value", "taken"),
    [
        (Listed("a", (1, 4, 9), 4), 9, 9),
        (Listed("a", (1, 4, 9), 4), 6, 4),
        (Listed("a", (1, 4, 9), 4), 1000, 9),
        (Listed("a", (1, 4, 9), 4), None, 4),
        (Listed("a", (1, 4, 9), 4), "9", 4),
        (Listed("a", (1, 4, 9), 4), True, 1),  # Python's True is 1
        (Choice("a", ("x", "y"), "y"), "x", "x"),
        (Choice("a", ("x", "y"), "y"), "gone", "y"),
        (Toggle("a", start=True), None, True),
    ],
)
def test_a_control_takes_the_value_or_the_nearest_or_its_start(control: Any, value: Any, taken: Any) -> None:
    assert FromRun.settled(control, value) == taken


def test_what_a_control_can_be_follows_from_the_run_and_the_controls_before_it() -> None:
    made = SCENE.made({"step": None, "below": None}, {"run": [2, 5]})
    assert [(control.values(), value) for control, value in made] == [([2, 5], 5), ([0, 1, 2, 3, 4], 0)]
    assert SCENE.compute({"step": 2, "below": 4}, {"run": [2, 5]})["sum"] == 2 + 1
    with pytest.raises(CannotAsk):
        SCENE.compute({"step": 9}, {"run": [9]})


def test_the_run_s_own_value_is_among_the_others_once() -> None:
    exact, between = around("beta", 0, 0.3, 0.01, 0.08), around("beta", 0, 0.3, 0.01, 0.1234567)
    assert len(exact.values()) == 31 and exact.start == 0.08 and exact.digits == 2
    assert len(between.values()) == 32 and between.start == 0.1234567 and between.digits == 4
    assert between.values() == sorted(between.values())
    assert around("beta", 0, 0.3, 0.01, 5.0).values()[-1] == 5.0  # beyond what the slider has


def test_controls_without_values_are_refused() -> None:
    with pytest.raises(ValueError, match="none of its 0 values"):
        Listed("a", (), 1)
    with pytest.raises(ValueError, match="none of its values"):
        Scene("one", lambda a: {"a": a}, controls=(Slider("a", 0, 1, 0.5, start=0),)).made({"a": 0.3}, {})


def test_a_text_that_looks_like_a_word_stays_a_text() -> None:
    picture = answers.picture_data(tokens([Token("@ratio", 1.0), Token("a", 2.0)], label=Word("ratio"), size=1))
    assert [item["text"] for item in picture["items"]] == ["@@ratio", "a"]
    assert picture["label"] == "@ratio"
    assert answers.slot_text({"prompt": "@me"}, "prompt", "") == "@@me"
    assert answers.slot_text({"prompt": Word("me")}, "prompt", "") == "@me"
