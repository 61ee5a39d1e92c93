"""Numbers of the lessons on rewards, advantages and the loss, worked out on paper."""

from __future__ import annotations

import pytest

from rlhf_studio.lessons.kit.options import options
from rlhf_studio.lessons.pages import clip, gae, rewards
from rlhf_studio.lessons.parts import after_gae, kl_dice, whole_loss
from tests.lessons.by_hand import all_close, close, log_softmax


def test_three_numbers_to_choose_from_name_the_place_of_the_right_one() -> None:
    assert options(1.0, [2.0, 3.0], 4) == {"first": 2.0, "second": 1.0, "third": 3.0, "answer": "second"}
    with pytest.raises(ValueError, match="2 wrong numbers"):
        options(1.0, [2.0], 0)


def test_what_is_not_a_number_is_close_to_nothing() -> None:
    assert close(1.0, 1.0 + 1e-12) and not close(float("nan"), 1.0) and not close(1.0, float("nan"))
    assert not all_close([1.0], [1.0, 2.0])
    assert all_close(log_softmax([0.0, 0.0]), [-0.6931471805599453] * 2)


def test_the_controller_moves_by_a_fifth_of_batch_over_horizon_at_most() -> None:
    # 0.2 · 128 / 10000 = 0.00256, for a KL of 9 at a target of 6 (half as much again) as for one of 20
    for kl in (9.0, 20.0):
        assert rewards.thermostat(kl, 6.0, 128, 10000)["change"] == pytest.approx(0.00256)
    assert rewards.thermostat(6.3, 6.0, 128, 10000)["change"] == pytest.approx(0.05 * 0.0128)
    assert rewards.thermostat(3.0, 6.0, 128, 10000)["last"] < rewards.BETA < rewards.thermostat(3.0, 6.0, 128, 10000)["habit"][-1]


def test_loaded_dice_make_k1_negative_and_fair_dice_do_not() -> None:
    loaded, fair = kl_dice.cut(3, 1.0, 3), kl_dice.cut(8, 1.0, 3)
    assert loaded["below"] and not fair["below"]
    assert loaded["exact"] == fair["exact"] > 0


def test_against_the_policy_that_sampled_there_is_no_kl() -> None:
    actual = rewards.last_token(1.8, 0.5, 1.5, "k1")
    assert actual["old"] == [0.0] * 5 + [1.8, 0.0]


def test_with_one_reward_at_the_end_all_returns_are_that_reward() -> None:
    actual = gae.credit(1.0, 0.9, 0.85)
    assert actual["returns"] == [0.85] * 6
    assert actual["rewards"] == [0.0] * 5 + [0.85]
    assert actual["reach"] == pytest.approx(0.59049)  # 0.9 to the power of 5


def test_the_ledger_from_right_to_left() -> None:
    # score 1.8: the last reward is 1.75. Without discount and with λ 1, A is what is still earned less the value.
    actual = gae.right_to_left(1.8, 1.0, 1.0, 4)
    assert actual["advantages"][:6] == pytest.approx([0.7, 0.82, 0.57, 0.07, 0.12, 0.05])
    assert actual["returns"][:6] == pytest.approx([1.6, 1.62, 1.57, 1.57, 1.72, 1.75])


def test_whitening_turns_half_of_a_good_batch() -> None:
    actual = after_gae.whitening(1.5, 0.5, False)
    assert (actual["below_before"], actual["below"], actual["tokens"]) == (0, 4, 8)
    assert after_gae.whitening(1.5, 0.02, False)["stretch"] == pytest.approx(25 * actual["stretch"], rel=1e-3)


def test_the_loss_reaches_the_values_only_where_they_are_not_held() -> None:
    assert after_gae.constants(1.0, False)["into_values"] == pytest.approx([1.0] * 6)
    assert after_gae.constants(1.0, True)["into_values"] == [0.0] * 6


def test_a_shift_of_all_logits_is_no_ratio() -> None:
    actual = clip.ratio(0.0, 3.0, 1.0)
    assert actual["rho"] == pytest.approx(1.0, abs=1e-12)
    assert actual["of_logits"] == pytest.approx(20.0855, rel=1e-4)


def test_the_four_cases() -> None:
    slopes = [clip.dead_zones(ratio, advantage, 0.2)["gradient"] for ratio in (0.7, 1.3) for advantage in (-1.0, 1.0)]
    assert slopes == pytest.approx([0.0, -0.7, 1.3, 0.0])


def test_the_critic_takes_the_larger_loss() -> None:
    ran_ahead, ran_away = whole_loss.value_clip(0.6, 1.2, 0.2), whole_loss.value_clip(-0.6, 1.2, 0.2)
    assert (ran_ahead["loss"], ran_ahead["smaller"], ran_ahead["slope"]) == pytest.approx((0.5, 0.18, 0.0))
    assert (ran_away["loss"], ran_away["smaller"], ran_away["slope"]) == pytest.approx((1.62, 0.98, -1.8))
