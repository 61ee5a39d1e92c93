"""Advantages without a critic: a response against the other responses to its prompt."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from rlhf_studio.ppo import (
    Minibatch,
    NewPass,
    ObjectiveSettings,
    grpo_advantages,
    policy_loss,
    ppo_objective,
    rloo_advantages,
    shape_rewards,
)

Draw = Callable[..., torch.Tensor]


def test_rloo_hand_worked() -> None:
    # Two prompts with three responses each, which earn 1, 2, 6 and −3, 0, 0:
    # 1 − (2 + 6) / 2 = −3,  2 − (1 + 6) / 2 = −1.5,  6 − (1 + 2) / 2 = 4.5
    # −3 − 0 = −3,  0 − (−3 + 0) / 2 = 1.5,  1.5
    rewards = torch.tensor([[0.5, 0.5], [2.0, 70.0], [-1.0, 7.0], [-3.0, 9.0], [1.0, -1.0], [0.0, torch.nan]])
    mask = torch.tensor([[True, True], [True, False], [True, True], [True, False], [True, True], [True, False]])
    assert rloo_advantages(rewards, mask, 3).tolist() == [[-3.0, -3.0], [-1.5, 0.0], [4.5, 4.5], [-3.0, 0.0], [1.5, 1.5], [1.5, 0.0]]


def test_rloo_charges_the_kl_of_the_whole_response() -> None:
    # Scores 1 and 1, β = ½; the first response pays ½ · (1 + 3), the second ½ · 2: they earn −1 and 0.
    mask = torch.tensor([[True, True], [True, False]])
    rewards = shape_rewards(torch.tensor([[1.0, 3.0], [2.0, 50.0]]), torch.tensor([1.0, 1.0]), mask, 0.5)
    assert rloo_advantages(rewards, mask, 2).tolist() == [[-1.0, -1.0], [1.0, 0.0]]


def test_grpo_hand_worked() -> None:
    # Scores 1, 2, 6: mean 3, sample variance (4 + 1 + 9) / 2 = 7. Scores 5, 5, 5 teach nothing.
    mask = torch.tensor([[True, True], [True, False], [True, True]]).repeat(2, 1)
    advantages = grpo_advantages(torch.tensor([1.0, 2.0, 6.0, 5.0, 5.0, 5.0]), mask, 3)
    spread = math.sqrt(7) + 1e-4
    expected = [[-2 / spread, -2 / spread], [-1 / spread, 0], [3 / spread, 3 / spread], [0, 0], [0, 0], [0, 0]]
    torch.testing.assert_close(advantages, torch.tensor(expected), rtol=0, atol=5e-7)


def test_rloo_is_unbiased_and_the_mean_of_all_is_not(noise: Draw) -> None:
    """Over every pair of draws from three answers, each with its probability, A · ∇log p is the gradient of the expected reward."""
    logits, reward = noise(3, dtype=torch.float64, requires_grad=True), torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    probability = logits.softmax(0)
    (expected,) = torch.autograd.grad((probability * reward).sum(), logits, retain_graph=True)
    estimate = torch.zeros(3, dtype=torch.float64)
    for first in range(3):
        for second in range(3):
            drawn = [first, second]
            advantages = rloo_advantages(reward[drawn].unsqueeze(1), torch.ones(2, 1, dtype=torch.bool), 2)[:, 0]
            (gradient,) = torch.autograd.grad((advantages * probability.log()[drawn]).mean(), logits, retain_graph=True)
            estimate += (probability[first] * probability[second]).detach() * gradient
    torch.testing.assert_close(estimate, expected)


@pytest.mark.parametrize("function", [rloo_advantages, grpo_advantages])
def test_what_is_no_group_is_refused(function: Callable[..., torch.Tensor], mask: torch.Tensor) -> None:
    given = torch.zeros(4, 6) if function is rloo_advantages else torch.zeros(4)
    with pytest.raises(ValueError, match="at least 2 responses per prompt or batch, got 1"):
        function(given, mask, 1)
    with pytest.raises(ValueError, match="4 responses are no whole groups of 3"):
        function(given, mask, 3)
    with pytest.raises(ValueError, match="shape"):
        function(given[:1], mask, 2)


# ---- the objective without a critic ----


def test_without_a_critic_the_loss_is_the_policys_alone(mask: torch.Tensor, noise: Draw) -> None:
    old, reference, advantages, entropy = (noise(4, 6) for _ in range(4))
    new = noise(4, 6, requires_grad=True)
    settings = ObjectiveSettings(vf_coef=5.0, cliprange_value=0.1, kl_coef=0.3, kl_in_loss="k3")
    loss, sums = ppo_objective(Minibatch(mask, old, reference, None, advantages, None), NewPass(new, None, entropy), settings)
    d = (new - reference)[mask]
    expected = policy_loss(new, old, advantages, mask, 0.2).loss_sum + 0.3 * ((-d).exp() - 1 + d).sum()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(x, new, retain_graph=True)[0] for x in (loss, expected)))
    assert (float(sums.value_loss), float(sums.value_clipped)) == (0.0, 0.0)


def test_a_critics_numbers_are_there_together_or_not_at_all(mask: torch.Tensor, noise: Draw) -> None:
    x = noise(4, 6)
    for values, returns, new in ((x, x, None), (x, None, x), (None, x, x), (None, None, x)):
        with pytest.raises(ValueError, match="without a critic all three are None"):
            ppo_objective(Minibatch(mask, x, x, values, x, returns), NewPass(x, new, x), ObjectiveSettings())
    with pytest.raises(ValueError, match="there is no critic that could learn"):
        ppo_objective(Minibatch(mask, x, x, None, x, None), NewPass(x, None, x), ObjectiveSettings(critic_only=True))
