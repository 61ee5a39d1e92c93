import math

import pytest
import torch

from rlhf_studio.ppo import gae, scale_to_unit_variance, whiten

# ---- generalised advantage estimation ----


def everything(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bool)


def test_gae_hand_worked():
    # γ = λ = ½. Row 0: δ₂ = 4 − 2 = 2, δ₁ = 1 + ½·2 − 1 = 1, δ₀ = 0 + ½·1 − 3 = −2.5
    #                   A₂ = 2,         A₁ = 1 + ¼·2 = 1.5,    A₀ = −2.5 + ¼·1.5 = −2.125
    # Row 1 has two tokens: δ₁ = 1 − 1 = 0 (no value after the end, whatever stands there), δ₀ = 2 + ½·1 − 0 = 2.5
    rewards = torch.tensor([[0.0, 1.0, 4.0], [2.0, 1.0, 50.0]])
    values = torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 70.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    advantages, returns, deltas = gae(rewards, values, mask, 0.5, 0.5)
    assert deltas.tolist() == [[-2.5, 1.0, 2.0], [2.5, 0.0, 0.0]]
    assert advantages.tolist() == [[-2.125, 1.5, 2.0], [2.5, 0.0, 0.0]]
    assert returns.tolist() == [[0.875, 2.5, 4.0], [2.5, 1.0, 0.0]]


@pytest.mark.parametrize("gamma", [1.0, 0.99, 0.5, 0.0])
@pytest.mark.parametrize("lam", [1.0, 0.95, 0.3, 0.0])
@pytest.mark.parametrize("tokens", [1, 2, 9])
@pytest.mark.parametrize("value", [0.0, 0.7, -3.0])
def test_only_reward_1_at_the_end_and_a_constant_critic(gamma, lam, tokens, value):
    """All surprises but the last are (γ − 1)·value, so that A is a geometric series plus the faded last surprise 1 − value."""
    rewards, values = torch.zeros(1, tokens), torch.full((1, tokens), value)
    rewards[0, -1] = 1
    advantages, returns, _ = gae(rewards, values, everything(1, tokens), gamma, lam)
    fading = gamma * lam
    for t in range(tokens):
        left = tokens - 1 - t
        series = left if fading == 1 else (1 - fading**left) / (1 - fading)
        expected = (gamma - 1) * value * series + fading**left * (1 - value)
        assert advantages[0, t].item() == pytest.approx(expected, abs=1e-6)
        assert returns[0, t].item() == pytest.approx(expected + value, abs=1e-6)


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_lambda_1_is_monte_carlo_whatever_the_critic_says(gamma, mask, noise):
    rewards = noise(4, 6)
    first, second = (gae(rewards, noise(4, 6), mask, gamma, 1.0) for _ in range(2))
    to_go = torch.zeros(4, 6)
    for episode, length in enumerate([6, 3, 1, 4]):
        for t in range(length):
            to_go[episode, t] = sum(gamma ** (k - t) * rewards[episode, k] for k in range(t, length))
    torch.testing.assert_close(first[1], to_go)
    torch.testing.assert_close(second[1], to_go)
    assert not torch.allclose(first[0], second[0])


def test_lambda_0_is_one_step_temporal_difference(mask, noise):
    rewards, values = noise(4, 6), noise(4, 6)
    advantages, returns, deltas = gae(rewards, values, mask, 0.9, 0.0)
    assert torch.equal(advantages, deltas)
    for episode, length in enumerate([6, 3, 1, 4]):
        for t in range(length):
            following = values[episode, t + 1] if t + 1 < length else 0.0
            torch.testing.assert_close(returns[episode, t], rewards[episode, t] + 0.9 * following)


@pytest.mark.parametrize("gamma", [0.5, 0.9])
@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
def test_perfect_critic_of_an_endless_reward_is_never_surprised(gamma, lam):
    """Reward 1 for ever is worth 1 + γ + γ² + … = 1 / (1 − γ): no surprise until the end, which cuts off γ / (1 − γ)."""
    tokens, worth = 400, 1 / (1 - gamma)
    rewards, values = torch.ones(1, tokens, dtype=torch.float64), torch.full((1, tokens), worth, dtype=torch.float64)
    advantages, returns, _ = gae(rewards, values, everything(1, tokens), gamma, lam)
    assert advantages[0, -1].item() == pytest.approx(-gamma / (1 - gamma))
    assert advantages[0, 0].item() == pytest.approx(0, abs=1e-6)
    assert returns[0, 0].item() == pytest.approx(worth)


@pytest.mark.parametrize("lam", [0.0, 0.95, 1.0])
def test_perfect_critic_of_a_response_that_ends(lam, mask, noise):
    """Values that already are the discounted rewards to go leave nothing to be surprised about."""
    rewards = noise(4, 6)
    exact = gae(rewards, torch.zeros(4, 6), mask, 0.9, 1.0)[1]
    advantages, returns, deltas = gae(rewards, exact, mask, 0.9, lam)
    torch.testing.assert_close(advantages, torch.zeros(4, 6), rtol=0, atol=1e-6)
    torch.testing.assert_close(deltas, torch.zeros(4, 6), rtol=0, atol=1e-6)
    torch.testing.assert_close(returns, exact)


def test_recursion_equals_the_linear_system_it_stands_for(noise):
    """A = δ + γλ·shift(A) is (I − γλS) A = δ, solved here by linear algebra."""
    gamma, lam, tokens = 0.97, 0.9, 8
    rewards, values = noise(3, tokens, dtype=torch.float64), noise(3, tokens, dtype=torch.float64)
    shift = torch.diag(torch.ones(tokens - 1, dtype=torch.float64), 1)
    surprises = rewards + gamma * values @ shift.T - values
    expected = torch.linalg.solve(torch.eye(tokens, dtype=torch.float64) - gamma * lam * shift, surprises.T).T
    advantages, _, deltas = gae(rewards, values, everything(3, tokens), gamma, lam)
    torch.testing.assert_close(deltas, surprises)
    torch.testing.assert_close(advantages, expected)


def test_gae_of_a_padded_row_equals_that_of_the_row_alone(mask, noise):
    rewards, values = noise(4, 6), noise(4, 6)
    batch = gae(rewards, values, mask, 0.9, 0.8)
    for episode, length in enumerate([6, 3, 1, 4]):
        alone = gae(rewards[episode : episode + 1, :length], values[episode : episode + 1, :length], everything(1, length), 0.9, 0.8)
        for whole, part in zip(batch, alone, strict=True):
            torch.testing.assert_close(whole[episode, :length], part[0])
            assert (whole[episode, length:] == 0).all()


def test_gae_is_linear_and_a_better_reward_is_a_better_advantage(mask, noise):
    rewards, values = noise(4, 6), noise(4, 6)
    better = rewards.clone()
    better[0, 4] += 1
    gain = gae(better, values, mask, 0.9, 0.8)[0] - gae(rewards, values, mask, 0.9, 0.8)[0]
    expected = torch.zeros(4, 6)
    expected[0, :5] = torch.tensor([0.72**k for k in (4, 3, 2, 1, 0)])
    torch.testing.assert_close(gain, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("row", [[True, False, True], [False, True, True], [False, False, True]])
def test_gae_refuses_a_mask_with_a_gap(row):
    mask = torch.tensor([[True, True, False], row])
    with pytest.raises(ValueError, match="the mask has a gap"):
        gae(torch.zeros(2, 3), torch.zeros(2, 3), mask, 1.0, 0.95)


def test_gae_leaves_its_inputs_alone(mask, noise):
    rewards, values = noise(4, 6), noise(4, 6)
    before = rewards.clone(), values.clone()
    gae(rewards, values, mask, 0.9, 0.8)
    assert torch.equal(rewards, before[0]) and torch.equal(values, before[1])


def test_gae_gradcheck(mask, noise):
    inputs = [noise(4, 6, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda rewards, values: gae(rewards, values, mask, 0.9, 0.8), inputs)


# ---- whitening ----


def test_whiten_hand_worked():
    # 1, 3: mean 2, sample variance 2
    x, mask = torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]])
    root = math.sqrt(0.5)
    assert whiten(x, mask)[0].tolist() == pytest.approx([-root, root, 0])
    assert scale_to_unit_variance(x, mask)[0].tolist() == pytest.approx([2 - root, 2 + root, 0])


@pytest.mark.parametrize("offset", [0.0, 12.0, -5.0])
def test_whitened_mean_is_0_and_variance_1(offset, mask, noise):
    whitened = whiten(3 * noise(4, 6) + offset, mask)[mask]
    assert whitened.mean().item() == pytest.approx(0, abs=1e-6)
    assert whitened.var().item() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("offset", [0.0, 12.0, -5.0])
def test_scaled_variance_is_1_and_the_mean_stays(offset, mask, noise):
    x = 3 * noise(4, 6) + offset
    scaled = scale_to_unit_variance(x, mask)[mask]
    assert scaled.mean().item() == pytest.approx(x[mask].mean().item(), abs=1e-5)
    assert scaled.var().item() == pytest.approx(1, rel=1e-5)


def test_shift_and_scale_of_the_input_do_not_reach_the_whitened(mask, noise):
    x = noise(4, 6)
    torch.testing.assert_close(whiten(7 * x - 3, mask), whiten(x, mask), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(whiten(-x, mask), -whiten(x, mask))


def test_order_is_kept(mask, noise):
    x = noise(4, 6)
    assert torch.equal(whiten(x, mask)[mask].argsort(), x[mask].argsort())
    assert torch.equal(scale_to_unit_variance(x, mask)[mask].argsort(), x[mask].argsort())


def test_small_variance_is_bounded_by_the_epsilon_inside_the_root():
    # ±1e-4: sample variance 2e-8, plus 1e-8 is 3e-8
    x = torch.tensor([[1e-4, -1e-4]])
    assert whiten(x, everything(1, 2))[0].tolist() == pytest.approx([1e-4 / math.sqrt(3e-8), -1e-4 / math.sqrt(3e-8)], rel=1e-5)


def test_equal_values_and_a_lone_token():
    equal = torch.full((2, 3), 0.5)
    assert whiten(equal, everything(2, 3)).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert scale_to_unit_variance(equal, everything(2, 3)).tolist() == equal.tolist()
    lone = torch.tensor([[True, False, False], [False, False, False]])
    assert whiten(equal, lone).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert scale_to_unit_variance(equal, lone).tolist() == [[0.5, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("function", [whiten, scale_to_unit_variance])
def test_whitening_nothing_is_refused(function):
    with pytest.raises(ValueError, match="the mask is empty"):
        function(torch.ones(2, 3), ~everything(2, 3))


@pytest.mark.parametrize("function", [whiten, scale_to_unit_variance])
def test_whitening_gradcheck(function, mask, noise):
    assert torch.autograd.gradcheck(lambda x: function(x, mask), noise(4, 6, dtype=torch.float64, requires_grad=True))
