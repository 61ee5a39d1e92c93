"""What the claims of three lessons are compared with, worked out on paper."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from rlhf_studio.analysis.reward_model.pairs import scored_pairs
from rlhf_studio.lessons import answers
from rlhf_studio.lessons.kit import Word
from rlhf_studio.lessons.pages import logprobs, reward_model
from tests.lessons import by_hand
from tests.lessons.claims.sampling import hand_ratio, kept_by_hand, one_logit_by_hand

LOGITS = [math.log(4), math.log(2), math.log(1), math.log(1)]  # probabilities 1/2, 1/4, 1/8, 1/8


@pytest.mark.parametrize(
    ("top_k", "top_p", "expected"),
    [
        (0, 1.0, {0: 1 / 2, 1: 1 / 4, 2: 1 / 8, 3: 1 / 8}),
        (2, 1.0, {0: 2 / 3, 1: 1 / 3}),
        (0, 0.5, {0: 1.0}),
        (0, 0.6, {0: 2 / 3, 1: 1 / 3}),
        (2, 0.7, {0: 2 / 3, 1: 1 / 3}),  # of the two that top-k leaves, the first has 2/3
        (2, 0.6, {0: 1.0}),
    ],
)
def test_what_top_k_and_top_p_keep(top_k: int, top_p: float, expected: dict[int, float]) -> None:
    assert kept_by_hand(LOGITS, top_k, top_p) == pytest.approx(expected)


def test_the_kl_of_one_changed_logit() -> None:
    # The first weight falls from 4 to 2: 2, 2, 1, 1 out of 6 against 4, 2, 1, 1 out of 8.
    exact = 1 / 3 * math.log((1 / 3) / (1 / 2)) + 1 / 3 * math.log((1 / 3) / (1 / 4)) + 2 * 1 / 6 * math.log((1 / 6) / (1 / 8))
    two_kept = 1 / 2 * math.log((1 / 3) / (1 / 2)) + 1 / 2 * math.log((1 / 3) / (1 / 4))
    assert one_logit_by_hand(LOGITS, -math.log(2), 0) == pytest.approx((exact, exact))
    assert one_logit_by_hand(LOGITS, -math.log(2), 2) == pytest.approx((exact, two_kept))
    assert two_kept < 0 < exact


def test_the_ratio_of_two_temperatures() -> None:
    # At temperature 1 the first of two weights 2 and 1 has 2/3, at temperature 1/2 it has 4/5.
    assert hand_ratio([math.log(2), 0.0], 0.5, 1.0) == pytest.approx((2 / 3) / (4 / 5))


def test_advantages_as_fading_sums() -> None:
    # Values 1, 2, 0 and a reward of 3 at the end: surprises 1, -2, 3.
    assert by_hand.advantages([0, 0, 3], [1, 2, 0], 1.0, 0.5) == pytest.approx([1 - 1 + 0.75, -2 + 1.5, 3])


def test_as_many_pairs_right_as_before_may_be_other_pairs() -> None:
    """A bonus for each token makes the first pair wrong and the second right: half of them are right as before, in another pair."""
    record = {"chosen": [1.0, 0.0], "rejected": [0.0, 1.0], "chosen_tokens": [1, 3], "rejected_tokens": [3, 1]}
    world = SimpleNamespace(scored_pairs=scored_pairs(record))
    stretched, with_bonus = (reward_model.how_sure(world, 2.0, per_token) for per_token in (0.0, 1.0))
    assert (stretched["accuracy"], with_bonus["accuracy"]) == (0.5, 0.5)
    assert (stretched["order"], with_bonus["order"]) == (Word("same_pairs"), Word("other_pairs"))


def test_the_world_is_loaded_once_and_remembers_what_it_said() -> None:
    world = answers.needed_by(answers.find("logprobs", "shift"))["world"]
    assert answers.needed_by(answers.find("sampling", "temperature"))["world"] is world
    assert world.next_logits("To my mind") is world.next_logits("To my mind")
    assert len(world.scored_pairs) == len(world.pairs)


def test_scores_of_prefixes_end_with_the_score() -> None:
    world = answers.needed_by(answers.find("logprobs", "shift"))["world"]
    for response in reward_model.RESPONSES.values():
        (score,) = world.scores(reward_model.PROMPT, [response])
        assert world.prefix_scores(reward_model.PROMPT, response)[-1] == pytest.approx(score, abs=1e-5)


def test_padding_with_position_ids_changes_nothing() -> None:
    world = answers.needed_by(answers.find("logprobs", "shift"))["world"]
    for text in logprobs.TEXTS:
        assert logprobs.padded(world, text, "left", 4, "from_mask") == pytest.approx(logprobs.one_by_one(world, text), abs=1e-4)
