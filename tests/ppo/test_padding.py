"""What the mask hides may be NaN or infinite and changes nothing: no result and no gradient, in any function.

One table names a call for every public function that takes a mask; a test makes sure that none is missing.
"""

import inspect
from collections.abc import Callable

import pytest
import torch

from rlhf_studio import ppo


# each call takes the (B, T) tensors that hold padding, and the mask
def objective(
    mask: torch.Tensor, old: torch.Tensor, reference: torch.Tensor, values: torch.Tensor, advantages: torch.Tensor, returns: torch.Tensor,
    new: torch.Tensor, new_values: torch.Tensor, entropy: torch.Tensor,
) -> list[torch.Tensor]:  # fmt: skip
    """The objective with every term, and its statistics."""
    terms = {"vf_coef": 0.5, "entropy_coef": 0.1, "kl_coef": 0.3, "kl_in_loss": "k3"}
    settings = ppo.ObjectiveSettings(0.2, 0.3, 1.5, 0.2, **terms, loss_average="responses")
    batch = ppo.Minibatch(mask, old, reference, values, advantages, returns)
    loss, sums = ppo.ppo_objective(batch, ppo.NewPass(new, new_values, entropy), settings)
    return [loss, *sums]


CALLS: dict[str, Callable] = {
    "masked_select": lambda mask, x: ppo.masked_select(x, mask),
    "masked_sum": lambda mask, x: ppo.masked_sum(x, mask),
    "masked_mean": lambda mask, x: ppo.masked_mean(x, mask),
    "masked_var": lambda mask, x: ppo.masked_var(x, mask),
    "masked_var, biased": lambda mask, x: ppo.masked_var(x, mask, unbiased=False),
    "shape_rewards": lambda mask, kl: ppo.shape_rewards(kl, torch.arange(4.0), mask, 0.3),
    "shape_rewards, early": lambda mask, kl, early: ppo.shape_rewards(kl, torch.arange(4.0), mask, 0.3, early=early),
    "gae": lambda mask, rewards, values: ppo.gae(rewards, values, mask, 0.9, 0.8),
    "whiten": lambda mask, x: ppo.whiten(x, mask),
    "scale_to_unit_variance": lambda mask, x: ppo.scale_to_unit_variance(x, mask),
    "policy_loss": lambda mask, new, old, advantages: ppo.policy_loss(new, old, advantages, mask, 0.2),
    "policy_loss, every option": lambda mask, new, old, advantages: ppo.policy_loss(new, old, advantages, mask, 0.2, 0.3, 1.5),
    "policy_loss, of the sequence": lambda mask, new, old, advantages: ppo.policy_loss(
        new, old, advantages, mask, 0.2, ratio_level="sequence", weights=ppo.token_weights(mask, "responses")
    ),
    "value_loss": lambda mask, new, old, returns: ppo.value_loss(new, old, returns, mask, 0.2),
    "value_loss, no clip": lambda mask, new, old, returns: ppo.value_loss(new, old, returns, mask, None),
    "kl_loss, k2": lambda mask, new, reference: ppo.kl_loss(new, reference, mask, "k2"),
    "kl_loss, k3": lambda mask, new, reference: ppo.kl_loss(new, reference, mask, "k3"),
    "entropy_bonus": lambda mask, entropy: ppo.entropy_bonus(entropy, mask),
    "explained_variance": lambda mask, values, returns: ppo.explained_variance(values, returns, mask),
    "estimate_advantages": lambda mask, rewards, values: ppo.estimate_advantages(rewards, values, mask, 0.9, 0.8),
    "shape_rewards, unit variance": lambda mask, kl: ppo.shape_rewards(kl, torch.arange(4.0), mask, 0.3, unit_variance=True),
    "ppo_objective": objective,
    "rloo_advantages": lambda mask, rewards: ppo.rloo_advantages(rewards, mask, 2),
    "reinforce_advantages": lambda mask, rewards: ppo.reinforce_advantages(rewards, mask),
    "dr_grpo_advantages": lambda mask, x: ppo.dr_grpo_advantages(ppo.masked_select(x, mask).sum(dim=1), mask, 2),
    "grpo_advantages": lambda mask, x: ppo.grpo_advantages(ppo.masked_select(x, mask).sum(dim=1), mask, 2),
}
POISONS = [torch.nan, torch.inf, 3e38]


def test_no_function_with_a_mask_is_missing():
    with_mask = {name for name in ppo.__all__ if inspect.isfunction(f := getattr(ppo, name)) and "mask" in inspect.signature(f).parameters}
    of_the_mask_alone = {"token_weights", "loss_divisor"}
    assert (with_mask | {"ppo_objective"}) - of_the_mask_alone == {name.split(",")[0] for name in CALLS}  # whose mask is in its minibatch


def outputs_and_gradients(call: Callable, mask: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """All results, then the gradient of their sum with respect to every input."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    result = call(mask, *inputs)
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    smooth = [x.sum() for x in results if x.requires_grad]
    gradients = torch.autograd.grad(sum(smooth), inputs, allow_unused=True, materialize_grads=True) if smooth else []
    return [x.detach() for x in results] + list(gradients)


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", CALLS)
def test_padding_changes_neither_result_nor_gradient(name, poison, mask, noise):
    call = CALLS[name]
    inputs = [noise(4, 6) for _ in list(inspect.signature(call).parameters)[1:]]
    clean = outputs_and_gradients(call, mask, inputs)
    poisoned = outputs_and_gradients(call, mask, [torch.where(mask, x, poison) for x in inputs])
    assert len(clean) == len(poisoned) > 0
    for expected, actual in zip(clean, poisoned, strict=True):
        assert expected.float().isfinite().all()
        assert torch.equal(actual, expected)
    for gradient in clean[-len(inputs) :]:
        assert gradient.shape != mask.shape or (gradient[~mask] == 0).all()


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize(
    "call",
    [
        lambda new, reference: ppo.token_logprobs(new, IDS, 0.7),
        lambda new, reference: ppo.token_logprobs_and_entropy(new, IDS, 0.7)[1],
        lambda new, reference: ppo.full_kl(ppo.log_distribution(new), ppo.log_distribution(reference)),
        *(
            lambda new, reference, e=estimator: ppo.kl_per_token(ppo.token_logprobs(new, IDS), ppo.token_logprobs(reference, IDS), e)
            for estimator in ("k1", "k2", "k3", "abs")
        ),
    ],
)
def test_functions_of_one_position_keep_bad_numbers_at_their_position(call, poison, mask, noise):
    """They take no mask, since each position depends on itself alone: real positions keep their results and gradients, bit for bit."""
    inputs = [noise(4, 6, 9) for _ in range(2)]

    def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        inputs = [x.clone().requires_grad_() for x in inputs]
        result = call(*inputs)
        gradients = torch.autograd.grad(ppo.masked_sum(result, mask), inputs, allow_unused=True, materialize_grads=True)
        return [x[mask].detach() for x in (result, *gradients)]

    clean, poisoned = run(inputs), run([torch.where(mask[..., None], x, poison) for x in inputs])
    for expected, actual in zip(clean, poisoned, strict=True):
        assert expected.isfinite().all() and torch.equal(actual, expected)


IDS = torch.randint(0, 9, (4, 6), generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("poison", POISONS)
def test_whole_update_from_logits_to_gradient(poison, mask, noise):
    """The road of one update. Hiding the logits first is what keeps a bad position out of the model's weights."""
    tensors = {name: noise(4, 6, 9) for name in ("new", "old", "reference")} | {name: noise(4, 6) for name in ("values", "new_values")}
    scores = noise(4)

    def update(tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        new_logits, new_values = tensors["new"].clone().requires_grad_(), tensors["new_values"].clone().requires_grad_()
        with torch.no_grad():
            logprobs, ref_logprobs = (ppo.token_logprobs(tensors[name], IDS, 0.7) for name in ("old", "reference"))
            rewards = ppo.shape_rewards(ppo.kl_per_token(logprobs, ref_logprobs, "k1"), scores, mask, 0.1)
            rewards = ppo.scale_to_unit_variance(rewards, mask)
            advantages, returns, _ = ppo.gae(rewards, tensors["values"], mask, 1.0, 0.95)
            advantages = ppo.whiten(advantages, mask)
        new_logprobs, entropy = ppo.token_logprobs_and_entropy(ppo.masked_select(new_logits, mask[..., None]), IDS, 0.7)
        policy = ppo.policy_loss(new_logprobs, logprobs, advantages, mask, 0.2, dual_clip=3.0)
        value = ppo.value_loss(new_values, tensors["values"], returns, mask, 0.2)
        kl = ppo.kl_loss(new_logprobs, ref_logprobs, mask, "k3")
        loss = (policy.loss_sum + 0.1 * value.loss_sum + 0.05 * kl - 0.01 * ppo.entropy_bonus(entropy, mask)) / policy.tokens
        loss.backward()
        return [loss.detach(), new_logits.grad, new_values.grad]

    clean = update(tensors)
    bad = {name: torch.where(mask[..., None] if x.dim() == 3 else mask, x, poison) for name, x in tensors.items()}
    for expected, actual in zip(clean, update(bad), strict=True):
        assert expected.isfinite().all() and torch.equal(actual, expected)
    assert clean[1][mask].abs().max() > 0 and clean[2][mask].abs().max() > 0
