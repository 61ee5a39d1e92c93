"""What makes GRPO, Dr. GRPO, DAPO, GSPO and REINFORCE of the same pieces: averages, the ratio of a response, advantages."""

from __future__ import annotations

import math

import pytest
import torch

from rlhf_studio.ppo import (
    Minibatch,
    NewPass,
    ObjectiveSettings,
    dr_grpo_advantages,
    loss_divisor,
    policy_loss,
    ppo_objective,
    reinforce_advantages,
    token_weights,
)

MASK = torch.tensor([[True, True, True, True], [True, False, False, False]])
ONES = torch.ones(2, 4, dtype=torch.float64)


def averaged(average: str, mask: torch.Tensor = MASK, **settings: float) -> tuple[float, list[list[float]]]:
    """The loss of two responses, of 4 tokens and of 1, and its gradient by each new log-probability.

    Every ratio is 1. Advantages 1 and −2 make each token's loss −1 and 2, and with β = 0.5 the k3 of each is ½ (e − 2): new minus
    reference is −1 everywhere.
    """
    new = torch.zeros(mask.shape, dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([[1.0], [-2.0]], dtype=torch.float64).expand(mask.shape)
    batch = Minibatch(mask, new.detach(), torch.ones_like(new), None, advantages, None)
    chosen = ObjectiveSettings(loss_average=average, longest=5, **settings)
    loss, sums = ppo_objective(batch, NewPass(new, None, torch.full_like(new, 0.3)), chosen)
    loss = loss / chosen.divisor(mask)
    (gradient,) = torch.autograd.grad(loss, new)
    assert float(sums.weight) == chosen.divisor(mask)
    return loss.item(), gradient.tolist()


@pytest.mark.parametrize(
    ("average", "loss", "each"),
    [
        ("tokens", (4 * -1 + 2) / 5, [1 / 5, 1 / 5]),  # five tokens, each a fifth
        ("responses", (-1 + 2) / 2, [1 / 8, 1 / 2]),  # two responses, each a half: a token of the long one an eighth
        ("constant", (4 * -1 + 2) / 10, [1 / 10, 1 / 10]),  # two responses of at most five tokens
    ],
)
def test_averages_hand_worked(average: str, loss: float, each: list[float]) -> None:
    actual, gradient = averaged(average)
    assert actual == pytest.approx(loss)
    assert gradient == [pytest.approx([-each[0]] * 4), pytest.approx([2 * each[1], 0, 0, 0])]  # −A · ρ by its log-probability


def test_the_other_terms_are_averaged_as_the_policys_loss() -> None:
    """β k3 and the entropy bonus of one response with 4 tokens and one with 1; both are the same at each token, so any mean is that."""
    for average, share in (("tokens", 1.0), ("responses", 1.0), ("constant", 5 / 10)):
        plain, _ = averaged(average)
        priced, _ = averaged(average, kl_coef=0.5, entropy_coef=0.1)
        assert priced - plain == pytest.approx(-0.1 * 0.3 * share)  # the KL is in the rewards: no term of the loss
    batch = Minibatch(MASK, 0 * ONES, ONES, None, 0 * ONES, None)
    for average, share in (("tokens", 1.0), ("responses", 1.0), ("constant", 5 / 10)):
        chosen = ObjectiveSettings(loss_average=average, longest=5, kl_coef=0.5, kl_in_loss="k3")
        loss, _ = ppo_objective(batch, NewPass(0 * ONES, None, ONES), chosen)
        assert (loss / chosen.divisor(MASK)).item() == pytest.approx(0.5 * (math.e - 2) * share)


def test_the_critics_loss_is_averaged_as_the_policys() -> None:
    """Errors of 2 at the four tokens of one response and of 4 at the one of the other: ½ · 4 and ½ · 16."""
    target = torch.tensor([[2.0], [4.0]], dtype=torch.float64).expand(2, 4)
    batch = Minibatch(MASK, 0 * ONES, 0 * ONES, 0 * ONES, 0 * ONES, target)
    for average, expected in (("tokens", (4 * 2 + 8) / 5), ("responses", (2 + 8) / 2), ("constant", (4 * 2 + 8) / 10)):
        chosen = ObjectiveSettings(loss_average=average, longest=5, vf_coef=1.0)
        loss, sums = ppo_objective(batch, NewPass(0 * ONES, 0 * ONES, ONES), chosen)
        assert (loss / chosen.divisor(MASK)).item() == pytest.approx(expected) == float(sums.mean_value_loss)


def test_what_is_no_average_is_refused() -> None:
    with pytest.raises(ValueError, match="must be tokens, responses or constant, got 'mean'"):
        token_weights(MASK, "mean")
    with pytest.raises(ValueError, match="at least 1 token, got 0"):
        loss_divisor(MASK, "constant", 0)


# ---- the ratio of a response (GSPO) ----


def test_ratio_of_a_response_hand_worked() -> None:
    # Ratios 2, 1/2, 1, 4 of one response: their geometric mean is 4^(1/4) = √2, above 1.2. The other's one token: 0.9.
    ratio = torch.tensor([[2.0, 0.5, 1.0, 4.0], [0.9, 7.0, 7.0, math.nan]], dtype=torch.float64)
    new = ratio.log().requires_grad_()
    advantages = torch.tensor([[1.0], [2.0]], dtype=torch.float64).expand(2, 4)
    held = policy_loss(new, 0 * ONES, advantages, MASK, 0.2, ratio_level="sequence")
    assert held.ratio.tolist() == [pytest.approx([math.sqrt(2)] * 4), pytest.approx([0.9, 1, 1, 1])]
    assert held.clipped.tolist() == [[True] * 4, [False] * 4]  # the response as a whole, though only two of its tokens moved so far
    assert held.loss_sum.item() == pytest.approx(-4 * 1.2 - 2 * 0.9)
    (gradient,) = torch.autograd.grad(held.loss_sum, new)
    assert gradient.tolist() == [[0, 0, 0, 0], pytest.approx([-1.8, 0, 0, 0])]

    free = policy_loss(new, 0 * ONES, advantages, MASK, 0.2, 0.5, ratio_level="sequence")
    (gradient,) = torch.autograd.grad(free.loss_sum, new)
    # four tokens with loss −s, and ds/dlogprob = s / 4: every token gets the same push, whatever its own ratio
    assert gradient[0].tolist() == pytest.approx([-math.sqrt(2)] * 4)


def test_gspo_is_a_mean_over_responses() -> None:
    """Eq. 5 of the paper, written out: the mean of min(s A, clip(s) A) over the responses."""
    logs = torch.tensor([[0.4, -0.1, 0.2, 0.1], [-0.6, 9.0, 9.0, 9.0]], dtype=torch.float64)
    advantages = [1.5, -0.5]
    chosen = ObjectiveSettings(cliprange=0.1, cliprange_high=0.12, ratio_level="sequence", loss_average="responses")
    batch = Minibatch(MASK, 0 * ONES, 0 * ONES, None, torch.tensor(advantages, dtype=torch.float64)[:, None].expand(2, 4), None)
    loss, _ = ppo_objective(batch, NewPass(logs, None, ONES), chosen)
    s = [math.exp(0.6 / 4), math.exp(-0.6)]
    terms = [min(one * a, min(max(one, 0.9), 1.12) * a) for one, a in zip(s, advantages, strict=True)]
    assert (loss / chosen.divisor(MASK)).item() == pytest.approx(-sum(terms) / 2)


def test_no_other_level() -> None:
    with pytest.raises(ValueError, match="must be token or sequence, got 'word'"):
        policy_loss(ONES, ONES, ONES, MASK, 0.2, ratio_level="word")


# ---- advantages ----


def test_dr_grpo_hand_worked() -> None:
    # 1, 2, 6 less their mean 3; 5, 5 and 8 less 6: prompts with a wider spread teach more
    mask = torch.tensor([[True, True], [True, False], [True, True]]).repeat(2, 1)
    advantages = dr_grpo_advantages(torch.tensor([1.0, 2.0, 6.0, 5.0, 5.0, 8.0]), mask, 3)
    assert advantages.tolist() == [[-2, -2], [-1, 0], [3, 3], [-1, -1], [-1, 0], [2, 2]]


def test_reinforce_hand_worked() -> None:
    # Rewards of whole responses 3, −1, 1, their mean 1; the KL is in the rewards already
    rewards = torch.tensor([[1.0, 2.0], [-1.0, 70.0], [2.0, -1.0]])
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    assert reinforce_advantages(rewards, mask).tolist() == [[2, 2], [-2, 0], [0, 0]]
    with pytest.raises(ValueError, match="at least 2 responses per prompt or batch, got 1"):
        reinforce_advantages(rewards[:1], mask[:1])
