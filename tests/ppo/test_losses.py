import math

import pytest
import torch

from rlhf_studio.ppo import entropy_bonus, kl_loss, policy_loss, value_loss

ONE = torch.ones(1, 1, dtype=torch.bool)


def single(x: float, requires_grad: bool = False) -> torch.Tensor:
    return torch.tensor([[x]], requires_grad=requires_grad)


def policy_case(ratio: float, advantage: float, **options: float) -> tuple[float, bool, float]:
    """One token: (loss, clipped, gradient with respect to its new log-probability)."""
    new = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    old, advantages = torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), advantage, dtype=torch.float64)
    result = policy_loss(new, old, advantages, ONE, 0.2, **options)
    result.loss_sum.backward()
    return result.loss_sum.item(), result.clipped.item(), new.grad.item()


# ---- policy ----


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped", "gradient"),
    [
        (1.0, 2.0, -2.0, False, -2.0), (1.1, 2.0, -2.2, False, -2.2),
        (1.5, 2.0, -2.4, True, 0.0),  # far enough up: stays at 1.2
        (0.5, 2.0, -1.0, False, -1.0),  # wrong way: never clipped
        (1.0, -2.0, 2.0, False, 2.0), (0.9, -2.0, 1.8, False, 1.8),
        (0.5, -2.0, 1.6, True, 0.0),  # far enough down: stays at 0.8
        (1.5, -2.0, 3.0, False, 3.0),  # wrong way
        (1.5, 0.0, 0.0, False, 0.0),
    ],
)  # fmt: skip
def test_policy_hand_worked(ratio, advantage, loss, clipped, gradient):
    assert policy_case(ratio, advantage) == pytest.approx((loss, clipped, gradient))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [(1.25, 1.0, -1.25, False), (1.5, 1.0, -1.28, True), (0.5, -1.0, 0.8, True), (0.75, -1.0, 0.8, True)],
)
def test_larger_upper_clip_range(ratio, advantage, loss, clipped):
    assert policy_case(ratio, advantage, cliprange_high=0.28)[:2] == pytest.approx((loss, clipped))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped", "gradient"),
    [
        (2.0, -1.0, 2.0, False, 2.0),  # below the ceiling of 3
        (5.0, -1.0, 3.0, True, 0.0),  # held at 3 |A|
        (5.0, -2.0, 6.0, True, 0.0),
        (0.5, -1.0, 0.8, True, 0.0),  # the lower clip is still there
        (5.0, 1.0, -1.2, True, 0.0),  # positive advantages know no ceiling
        (0.1, 1.0, -0.1, False, -0.1),
    ],
)  # fmt: skip
def test_dual_clip(ratio, advantage, loss, clipped, gradient):
    assert policy_case(ratio, advantage, dual_clip=3.0) == pytest.approx((loss, clipped, gradient))


def test_policy_hand_worked_batch():
    ratio = torch.tensor([[1.5, 1.1, 9.0], [0.5, 9.0, 9.0]])
    advantages = torch.tensor([[1.0, -1.0, 9.0], [-2.0, 9.0, 9.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    result = policy_loss(ratio.log(), torch.zeros(2, 3), advantages, mask, 0.2)
    assert result.loss_sum.item() == pytest.approx(-1.2 + 1.1 + 1.6)
    assert result.clipped.tolist() == [[True, False, False], [True, False, False]]
    torch.testing.assert_close(result.ratio, torch.tensor([[1.5, 1.1, 1.0], [0.5, 1.0, 1.0]]))
    assert result.tokens.item() == 3 and result.tokens.dtype == torch.int64


def test_policy_ratio_carries_no_gradient(mask, noise):
    assert not policy_loss(noise(4, 6, requires_grad=True), noise(4, 6), noise(4, 6), mask, 0.2).ratio.requires_grad


def test_settings_outside_their_range_are_refused():
    x = single(0)
    for bad in (0.0, 1.0, -0.2, math.nan):
        with pytest.raises(ValueError, match="cliprange must lie between 0 and 1"):
            policy_loss(x, x, single(1), ONE, bad)
    for bad in (0.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="cliprange_high must be above 0, or None"):
            policy_loss(x, x, single(1), ONE, 0.2, bad)
        with pytest.raises(ValueError, match="cliprange_value must be above 0, or None"):
            value_loss(x, x, single(1), ONE, bad)
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="dual_clip must be above 1, or None"):
            policy_loss(x, x, single(1), ONE, 0.2, None, bad)


# ---- value ----


@pytest.mark.parametrize(
    ("new", "old", "target", "loss", "clipped", "gradient"),
    [
        (1.0, 1.0, 3.0, 2.0, False, -2.0),  # ½ (1 − 3)²
        (1.1, 1.0, 3.0, 1.805, False, -1.9),  # inside the range
        (2.0, 1.0, 3.0, 1.62, True, 0.0),  # towards the target, but held at 1.2: ½ (1.2 − 3)²
        (0.0, 1.0, 3.0, 4.5, False, -3.0),  # away from the target: not held
        (2.0, 3.0, 0.0, 3.92, True, 0.0),  # held at 2.8
        (9.0, 1.0, 3.0, 18.0, False, 6.0),  # overshot: the plain error is the larger one
    ],
)  # fmt: skip
def test_value_hand_worked(new, old, target, loss, clipped, gradient):
    new_values = torch.tensor([[new]], dtype=torch.float64, requires_grad=True)
    result = value_loss(new_values, single(old).double(), single(target).double(), ONE, 0.2)
    result.loss_sum.backward()
    assert (result.loss_sum.item(), result.clipped.item(), new_values.grad.item()) == pytest.approx((loss, clipped, gradient))


def test_value_without_clipping_is_half_the_squared_error(mask, noise):
    new, target = noise(4, 6, requires_grad=True), noise(4, 6)
    result = value_loss(new, noise(4, 6), target, mask, None)
    assert result.loss_sum.item() == pytest.approx(0.5 * ((new - target)[mask] ** 2).sum().item(), rel=1e-6)
    assert not result.clipped.any() and result.clipped.shape == mask.shape and result.clipped.dtype == torch.bool
    assert result.tokens.item() == 14
    result.loss_sum.backward()
    torch.testing.assert_close(new.grad, torch.where(mask, (new - target).detach(), 0.0))


# ---- KL in the loss, entropy ----


def test_kl_loss_hand_worked():
    new, reference = torch.tensor([[0.5, 0.2, 0.9]]).log(), torch.tensor([[0.25, 0.8, 0.1]]).log()
    mask = torch.tensor([[True, True, False]])
    two, four = math.log(2), math.log(4)
    assert kl_loss(new, reference, mask, "k2").item() == pytest.approx((two**2 + four**2) / 2)
    assert kl_loss(new, reference, mask, "k3").item() == pytest.approx((1 / 2 - 1 + two) + (4 - 1 - four))


@pytest.mark.parametrize("estimator", ["k1", "abs", "full", "k4"])
def test_kl_loss_refuses_estimators_without_a_useful_gradient(estimator):
    with pytest.raises(ValueError, match="estimator must be k2 or k3 in the loss"):
        kl_loss(single(0), single(0), ONE, estimator)


def test_entropy_bonus_hand_worked():
    entropy = torch.tensor([[1.0, 2.0, 9.0], [4.0, 9.0, 9.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    bonus = entropy_bonus(entropy, mask)
    assert bonus.item() == 7
    bonus.backward()
    assert entropy.grad.tolist() == [[1, 1, 0], [1, 0, 0]]


# ---- sums over micro-batches ----


@pytest.mark.parametrize("sizes", [(1, 3), (1, 1, 1, 1)])
def test_sums_of_micro_batches_equal_the_whole(sizes, mask, noise):
    """Rows have 6, 3, 1 and 4 tokens, so a mean of means would differ; the sum over the global token count does not."""
    whole, old, third = (noise(4, 6, dtype=torch.float64) for _ in range(3))

    def total(new: torch.Tensor, rows: slice) -> torch.Tensor:
        m = mask[rows]
        policy = policy_loss(new, old[rows], third[rows], m, 0.2)
        value = value_loss(new, old[rows], third[rows], m, 0.2)
        assert policy.tokens == value.tokens == m.sum()
        loss = policy.loss_sum + 0.1 * value.loss_sum + 0.05 * kl_loss(new, old[rows], m, "k3") - 0.01 * entropy_bonus(new, m)
        return loss / mask.sum()

    together = whole.clone().requires_grad_()
    expected = total(together, slice(0, 4))
    expected.backward()
    split, start, loss = whole.clone().requires_grad_(), 0, 0.0
    for size in sizes:
        rows = slice(start, start + size)
        part = total(split[rows], rows)
        part.backward()
        loss, start = loss + part.item(), start + size
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(split.grad, together.grad)


def test_a_micro_batch_without_tokens_adds_nothing():
    nothing, zeros = torch.zeros(1, 2, dtype=torch.bool), torch.zeros(1, 2)
    assert policy_loss(zeros, zeros, zeros + 1, nothing, 0.2).loss_sum == 0
    assert value_loss(zeros, zeros, zeros + 1, nothing, 0.2).loss_sum == 0
    assert policy_loss(zeros, zeros, zeros + 1, nothing, 0.2).tokens == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda x, mask: policy_loss(x, x, x, mask, 0.2),
        lambda x, mask: value_loss(x, x, x, mask, 0.2),
        lambda x, mask: kl_loss(x, x, mask, "k2"),
        entropy_bonus,
    ],
)
def test_shapes_that_only_broadcast_are_refused(call):
    with pytest.raises(ValueError, match="they must be equal"):
        call(torch.ones(3, 3, 1), torch.ones(3, 3, dtype=torch.bool))
