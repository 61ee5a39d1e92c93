import json
import math

import pytest

from rlhf_studio.ppo import AdaptiveKL, FixedKL


def test_fixed_stays():
    control = FixedKL(0.1)
    for kl in (0.0, 100.0, -3.0):
        control.update(kl, 64)
    assert control.coef == 0.1


@pytest.mark.parametrize(
    ("kl", "factor"),
    [
        (6.0, 1.0),  # on target
        (6.6, 1.01),  # error 0.1, 0.1 · 100 / 1000
        (5.4, 0.99),
        (7.2, 1.02),  # error 0.2, the most
        (600.0, 1.02),
        (0.0, 0.98),
        (-50.0, 0.98),
    ],
)
def test_adaptive_hand_worked(kl, factor):
    control = AdaptiveKL(0.5, target=6.0, horizon=1000)
    control.update(kl, 100)
    assert control.coef == pytest.approx(0.5 * factor)


def test_zero_coefficient_stays_zero():
    control = AdaptiveKL(0.0, 6.0, 1000)
    control.update(100.0, 100)
    assert control.coef == 0


@pytest.mark.parametrize("make", [lambda coef: FixedKL(coef), lambda coef: AdaptiveKL(coef, 6.0, 1000)])
def test_state_through_json(make):
    control = make(0.3)
    control.update(11.0, 77)
    state = json.loads(json.dumps(control.state_dict()))
    assert all(isinstance(number, float) for number in state.values())
    resumed = make(0.9)
    resumed.load_state_dict(state)
    control.update(2.0, 77), resumed.update(2.0, 77)
    assert resumed.coef == control.coef


@pytest.mark.parametrize("make", [lambda coef: FixedKL(coef), lambda coef: AdaptiveKL(coef, 6.0, 1000)])
@pytest.mark.parametrize("coef", [-0.1, math.nan, math.inf])
def test_bad_coefficient(make, coef):
    with pytest.raises(ValueError, match="coef must be a finite number, 0 or above"):
        make(coef)
    control = make(0.3)
    with pytest.raises(ValueError, match="coef must be a finite number, 0 or above"):
        control.load_state_dict({"coef": coef})
    assert control.coef == 0.3


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_target_or_horizon(bad):
    with pytest.raises(ValueError, match="target must be a finite number above 0"):
        AdaptiveKL(0.1, bad, 1000)
    with pytest.raises(ValueError, match="horizon must be a finite number above 0"):
        AdaptiveKL(0.1, 6.0, bad)


@pytest.mark.parametrize("kl", [math.nan, math.inf, -math.inf])
def test_a_kl_that_is_not_finite_does_not_reach_the_coefficient(kl):
    control = AdaptiveKL(0.1, 6.0, 1000)
    with pytest.raises(ValueError, match="kl must be finite"):
        control.update(kl, 64)
    assert control.coef == 0.1


def test_a_batch_too_large_for_its_horizon_does_not_turn_the_sign():
    control = AdaptiveKL(0.1, 6.0, 10)
    with pytest.raises(ValueError, match="horizon 10 is too short for batches of 50 episodes: it must be above 10"):
        control.update(0.0, 50)
    assert control.coef == 0.1
    control.update(0.0, 49)
    assert control.coef == pytest.approx(0.1 * 0.02)
