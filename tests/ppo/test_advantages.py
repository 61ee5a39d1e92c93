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


def test_lambda_1_is_monte_carlo_whatever_the_critic_says(mask, noise):
    gamma, rewards = 0.9, noise(4, 6)
    first, second = (gae(rewards, noise(4, 6), mask, gamma, 1.0) for _ in range(2))
    to_go = torch.zeros(4, 6)
    for episode, length in enumerate([6, 3, 1, 4]):
        for t in range(length):
            to_go[episode, t] = sum(gamma ** (k - t) * rewards[episode, k] for k in range(t, length))
    torch.testing.assert_close(first[1], to_go)
    torch.testing.assert_close(second[1], to_go)
    assert not torch.allclose(first[0], second[0])


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


@pytest.mark.parametrize("row", [[True, False, True], [False, True, True], [False, False, True]])
def test_gae_refuses_a_mask_with_a_gap(row):
    mask = torch.tensor([[True, True, False], row])
    with pytest.raises(ValueError, match="the mask has a gap"):
        gae(torch.zeros(2, 3), torch.zeros(2, 3), mask, 1.0, 0.95)


# ---- whitening ----


def test_whiten_hand_worked():
    # 1, 3: mean 2, sample variance 2
    x, mask = torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]])
    root = math.sqrt(0.5)
    assert whiten(x, mask)[0].tolist() == pytest.approx([-root, root, 0])
    assert scale_to_unit_variance(x, mask)[0].tolist() == pytest.approx([2 - root, 2 + root, 0])


def test_both_whitenings_have_variance_1_and_one_keeps_the_mean(mask, noise):
    x = 3 * noise(4, 6) + 12
    for result, mean in ((whiten(x, mask)[mask], 0), (scale_to_unit_variance(x, mask)[mask], x[mask].mean().item())):
        assert result.mean().item() == pytest.approx(mean, abs=1e-5)
        assert result.var().item() == pytest.approx(1, rel=1e-5)


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
