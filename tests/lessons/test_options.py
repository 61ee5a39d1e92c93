"""Three numbers to choose from: no two are shown alike, and a sentence chosen from numbers is true for all values of a scene's controls."""

from __future__ import annotations

import itertools

import pytest

from rlhf_studio.lessons import answers
from rlhf_studio.lessons.kit.options import POSITIONS, options
from rlhf_studio.lessons.pages import beyond, gae, rewards
from tests.lessons.claims import claims_of
from tests.lessons.claims.beyond import OPTIONS


def shown(found: dict[str, object], form: str) -> list[str]:
    return [format(found[name], form) for name in POSITIONS]


def test_a_wrong_number_that_would_be_shown_like_another_is_moved_by_one_unit() -> None:
    actual = options(0.5, [0.501, 0.502], 1)
    assert shown(actual, ".2f") == ["0.51", "0.50", "0.52"]
    assert actual["second"] == 0.5 and actual["answer"] == "second"
    assert shown(options(3.0, [3.0, 4.0], 0, digits=0), ".0f") == ["3", "4", "5"]
    assert shown(options(0.0, [-0.001, 0.01], 2), "+.2f") == ["+0.01", "+0.02", "+0.00"]  # minus zero and zero are one number


def test_numbers_that_differ_stay_as_they_are() -> None:
    assert options(1, [2, 3], 0) == {"first": 1, "second": 2, "third": 3, "answer": "first"}
    with pytest.raises(ValueError, match="2 wrong numbers"):
        options(1, [2], 0)


def test_a_check_prints_each_number_once() -> None:
    actual = beyond.check(-2.0, -1.0, 0.0, 1)  # the deviation of these scores is 1, so GRPO's number is that less the mean
    assert {format(actual[name], "+.2f") for name in OPTIONS} == {"-1.50", "-1.00", "+1.50"}
    assert beyond.check(0.5, 1.0, 0.0, 1)["answer"] == "all_same"


def test_the_ledger_has_one_right_number_wherever_little_is_carried() -> None:
    for lam, score, at in itertools.product((0.0, 0.05, 0.95), (-2, 0.0, 1.7, 1.8, 4.0), range(1, 6)):
        actual = gae.right_to_left(score, 1.0, lam, at)
        right = format(actual["found"], "+.2f")
        assert shown(actual, "+.2f").count(right) == 1
        assert format(actual[actual["answer"]], "+.2f") == right


def test_the_sentence_about_the_turned_sign_follows_the_totals() -> None:
    assert rewards.last_token(1.8, 0.2, 1.5, "k1")["turned_means"] == "paid_out"
    actual = rewards.last_token(2.6, 0.18, -1.8, "k1")
    assert actual["total_turned"] < actual["total"] and actual["turned_means"] == "taken"
    assert rewards.last_token(1.8, 0.0, 1.5, "k1")["turned_means"] == "no_price"


def test_the_sentence_about_the_scale_follows_the_deviation() -> None:
    effects = {outlier: rewards.scaling("scale", 2, outlier, True)["scale_effect"] for outlier in (2.0, 15.0)}
    assert effects == {2.0: "grows", 15.0: "shrinks"}
    assert rewards.scaling("none", 2, 15.0, True)["scale_effect"] == "undivided"


@pytest.mark.parametrize("name", [pytest.param("price", marks=pytest.mark.long), "open_loop"])
def test_what_is_said_of_the_recorded_run_holds_for_all_values(name: str) -> None:
    scene = answers.find("what_goes_wrong", name)
    needed = answers.needed_by(scene)
    names = [control.name for control in scene.controls]
    few = {"beta": (0.0, 0.08, 0.1), "horizon": (500, 10000)}
    every = [few.get(control.name, control.values()) for control in scene.controls]
    for values in itertools.product(*every):
        numbers = scene.compute(dict(zip(names, values, strict=True)), needed)
        broken = [claim for claim, holds in claims_of("what_goes_wrong", scene).items() if not holds(numbers)]
        assert not broken, f"at {values}: {broken}"
