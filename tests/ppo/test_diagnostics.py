import pytest
import torch

from rlhf_studio.ppo import Minibatch, NewPass, ObjectiveSettings, UpdateSums, explained_variance, ppo_objective

MASK = torch.tensor([[True, True, True], [True, False, False]])


def sums_of(new: torch.Tensor, old: torch.Tensor, mask: torch.Tensor, advantages: float = 1.0) -> UpdateSums:
    """The statistics of an objective with ε = 0.2 in which only the policy's log-probabilities matter."""
    zeros = torch.zeros_like(new)
    batch = Minibatch(mask, old, zeros, zeros, torch.full_like(new, advantages), zeros)
    return ppo_objective(batch, NewPass(new, zeros, zeros + 0.5), ObjectiveSettings(cliprange=0.2)).sums


def test_approx_kl_hand_worked():
    # differences 1, −1, 2, 0: ½ · 6 / 4
    new, old = torch.tensor([[1.0, -1.0, 2.0], [0.0, 9.0, 9.0]]), torch.zeros(2, 3)
    assert sums_of(new, old, MASK).approx_kl.item() == 0.75
    assert sums_of(old, new, MASK).approx_kl.item() == 0.75
    assert sums_of(new, new, MASK).approx_kl.item() == 0


def test_clip_fraction_hand_worked():
    # with advantage 1 clipping decides where the ratio is above 1.2, with −1 where it is below 0.8
    new = torch.tensor([[1.5, 0.7, 1.1], [0.5, 9.0, 0.1]]).log()
    assert sums_of(new, torch.zeros(2, 3), MASK).clip_fraction.item() == 0.25
    assert sums_of(new, torch.zeros(2, 3), MASK, advantages=-1.0).clip_fraction.item() == 0.5


def test_value_clip_fraction_and_losses_hand_worked():
    # The critic moved from 0 to 1, 0.1, 3, −1 with targets 2, 2, 2, −3 and ε_v = 0.5: held at 0.5, free, held, held at −0.5.
    # Larger squared error of the two: 1.5², 1.9², 1.5² (against 1²), 2.5²; the clipped one is larger for three tokens.
    new_values, returns = torch.tensor([[1.0, 0.1, 3.0], [-1.0, 9.0, 9.0]]), torch.tensor([[2.0, 2.0, 2.0], [-3.0, 9.0, 9.0]])
    zeros = torch.zeros(2, 3)
    batch = Minibatch(MASK, zeros, zeros, zeros, zeros, returns)
    loss, sums = ppo_objective(batch, NewPass(zeros, new_values, zeros), ObjectiveSettings(cliprange_value=0.5, vf_coef=0.1))
    assert sums.value_clip_fraction.item() == 0.75
    expected = (1.5**2 + 1.9**2 + 1.5**2 + 2.5**2) / 2
    assert sums.mean_value_loss.item() == pytest.approx(expected / 4)
    assert loss.item() == pytest.approx(0.1 * expected)


def test_ratio_hand_worked():
    # 1, 2, 3, 2: mean 2, variance 2 / 4
    ratio = torch.tensor([[1.0, 2.0, 3.0], [2.0, 50.0, 50.0]])
    sums = sums_of(ratio.log(), torch.zeros(2, 3), MASK)
    assert [sums.mean_ratio.item(), sums.ratio_variance.item()] == pytest.approx([2, 0.5], abs=1e-6)
    assert sums.mean_entropy.item() == 0.5 and sums.tokens.item() == 4


def test_sums_of_parts_are_those_of_the_whole(mask, noise):
    new, old = noise(4, 6), noise(4, 6)
    parts = [sums_of(new[rows], old[rows], mask[rows]) for rows in (slice(0, 1), slice(1, 4))]
    whole, total = sums_of(new, old, mask), UpdateSums.total(parts)
    assert [float(x) for x in total] == pytest.approx([float(x) for x in whole], rel=1e-5)
    assert float(total.approx_kl) == pytest.approx(float(whole.approx_kl))
    numbers = UpdateSums(*(float(x) for x in whole))  # as the engine holds them
    assert numbers.ratio_variance == pytest.approx(float(whole.ratio_variance), rel=1e-4)


def test_only_the_critic_learns_while_it_warms_up(mask, noise):
    """Neither the policy's loss nor a KL in the loss takes part, but both are reported."""
    old, new = noise(4, 6), [noise(4, 6).requires_grad_() for _ in range(3)]
    batch = Minibatch(mask, old, noise(4, 6), noise(4, 6), noise(4, 6), noise(4, 6))
    settings = ObjectiveSettings(vf_coef=0.5, entropy_coef=1.0, kl_coef=1.0, kl_in_loss="k2", critic_only=True)
    loss, sums = ppo_objective(batch, NewPass(*new), settings)
    of_logprobs, of_values, of_entropy = torch.autograd.grad(loss, new, allow_unused=True)
    assert of_logprobs is None and of_entropy is None and of_values.abs().sum() > 0
    assert loss.item() == pytest.approx(0.5 * float(sums.value_loss)) and float(sums.policy_loss) != 0


def test_explained_variance_hand_worked():
    # returns 1, 2, 3, 6: mean 3, variance 14 / 4; errors 0, 0, 0, 2: mean square 1
    returns, values = torch.tensor([[1.0, 2.0, 3.0], [6.0, 50.0, 60.0]]), torch.tensor([[1.0, 2.0, 3.0], [4.0, 70.0, 80.0]])
    assert explained_variance(values, returns, MASK).item() == pytest.approx(1 - 4 / 14)


@pytest.mark.parametrize("constant", [0.0, 0.1, -7.3, 1e6])
def test_equal_returns_leave_nothing_to_explain(constant, mask, noise):
    assert explained_variance(noise(4, 6), torch.full((4, 6), constant), mask).isnan()


def test_one_token():
    one = torch.tensor([[True, False]])
    x = torch.tensor([[2.0, 5.0]])
    assert explained_variance(x, x, one).isnan()
    sums = sums_of(x, x, one)
    assert [sums.mean_ratio.item(), sums.ratio_variance.item()] == [1, 0]


def test_empty_masks_and_wrong_shapes_are_refused():
    x = torch.ones(2, 3)
    with pytest.raises(ValueError, match="the mask is empty"):
        explained_variance(x, x, torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="they must be equal"):
        explained_variance(torch.ones(3, 3, 1), torch.ones(3, 3, 1), torch.ones(3, 3, dtype=torch.bool))
