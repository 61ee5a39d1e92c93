import math

import pytest
import torch

from rlhf_studio.ppo import approx_kl, clip_fraction, explained_variance, policy_loss, ratio_stats

MASK = torch.tensor([[True, True, True], [True, False, False]])


def test_approx_kl_hand_worked():
    # differences 1, −1, 2, 0: ½ · 6 / 4
    new, old = torch.tensor([[1.0, -1.0, 2.0], [0.0, 9.0, 9.0]]), torch.zeros(2, 3)
    assert approx_kl(new, old, MASK).item() == 0.75
    assert approx_kl(old, new, MASK).item() == 0.75
    assert approx_kl(new, new, MASK).item() == 0


def test_clip_fraction_hand_worked():
    clipped = torch.tensor([[True, False, False], [False, True, True]])
    assert clip_fraction(clipped, MASK).item() == 0.25
    assert clip_fraction(~MASK, MASK).item() == 0
    assert clip_fraction(MASK, MASK).item() == 1


def test_ratio_stats_hand_worked():
    # 1, 2, 3, 2: mean 2, variance 2 / 4
    ratio = torch.tensor([[1.0, 2.0, 3.0], [2.0, 50.0, 50.0]])
    assert [number.item() for number in ratio_stats(ratio, MASK)] == [2, 0.5]


def test_unmoved_policy(mask, noise):
    logprobs = noise(4, 6)
    loss = policy_loss(logprobs, logprobs, noise(4, 6), mask, 0.2)
    assert [number.item() for number in ratio_stats(loss.ratio, mask)] == [1, 0]
    assert clip_fraction(loss.clipped, mask).item() == 0
    assert approx_kl(logprobs, logprobs, mask).item() == 0


def test_explained_variance_hand_worked():
    # returns 1, 2, 3, 6: mean 3, variance 14 / 4; errors 0, 0, 0, 2: mean square 1
    returns, values = torch.tensor([[1.0, 2.0, 3.0], [6.0, 50.0, 60.0]]), torch.tensor([[1.0, 2.0, 3.0], [4.0, 70.0, 80.0]])
    assert explained_variance(values, returns, MASK).item() == pytest.approx(1 - 4 / 14)


def test_explained_variance_landmarks(mask, noise):
    returns = noise(4, 6)
    mean, zero = returns[mask].mean(), torch.zeros(())
    assert explained_variance(returns, returns, mask).item() == 1
    torch.testing.assert_close(explained_variance(mean.expand(4, 6), returns, mask), zero, rtol=0, atol=1e-6)
    assert explained_variance(returns + 10, returns, mask) < -1  # a constant error is not forgiven
    assert explained_variance(-returns, returns, mask) < 0


@pytest.mark.parametrize("constant", [0.0, 0.1, -7.3, 1e6])
def test_equal_returns_leave_nothing_to_explain(constant, mask, noise):
    assert explained_variance(noise(4, 6), torch.full((4, 6), constant), mask).isnan()


def test_one_token():
    one = torch.tensor([[True, False]])
    x = torch.tensor([[2.0, 5.0]])
    assert explained_variance(x, x, one).isnan()
    assert [number.item() for number in ratio_stats(x, one)] == [2, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, mask: approx_kl(x, x, mask),
        lambda x, mask: explained_variance(x, x, mask),
        clip_fraction,
        ratio_stats,
    ],
)
def test_empty_masks_and_wrong_shapes_are_refused(call):
    with pytest.raises(ValueError, match="the mask is empty"):
        call(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="they must be equal"):
        call(torch.ones(3, 3, 1), torch.ones(3, 3, dtype=torch.bool))


def test_approx_kl_estimates_the_kl_of_a_small_step(noise):
    """Half the mean square of the difference is the KL to second order: compare with the exact one of a slightly moved policy."""
    logits = noise(1, 5, dtype=torch.float64)
    old = logits.log_softmax(-1)
    new = (logits + 0.01 * noise(1, 5, dtype=torch.float64)).log_softmax(-1)
    exact = (old.exp() * (old - new)).sum().item()
    counts = (old.exp() * 100_000).round().long().flatten()  # 100,000 samples in their exact proportions
    sampled = torch.repeat_interleave(torch.arange(5), counts)
    estimate = approx_kl(new[:, sampled], old[:, sampled], torch.ones(1, len(sampled), dtype=torch.bool)).item()
    assert estimate == pytest.approx(exact, rel=0.02)
    assert not math.isclose(exact, 0, abs_tol=1e-7)
