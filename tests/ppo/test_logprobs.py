import math

import pytest
import torch
from torch.distributions import Categorical

from rlhf_studio.ppo import log_distribution, token_logprobs, token_logprobs_and_entropy

FUNCTIONS = [token_logprobs, lambda *arguments: token_logprobs_and_entropy(*arguments)[0]]


@pytest.fixture
def logits(noise):
    return 3 * noise(4, 6, 9)


@pytest.fixture
def ids():
    return torch.randint(0, 9, (4, 6), generator=torch.Generator().manual_seed(3))


def test_hand_worked():
    # odds 1 : 2 : 5, so the probabilities are 1/8, 1/4 and 5/8
    logits = torch.tensor([[[0.0, math.log(2), math.log(5)]]])
    logprobs, entropy = token_logprobs_and_entropy(logits, torch.tensor([[1]]))
    assert logprobs.item() == pytest.approx(math.log(1 / 4))
    assert entropy.item() == pytest.approx(math.log(8) / 8 + math.log(4) / 4 + 5 / 8 * math.log(8 / 5))
    assert log_distribution(logits).exp().flatten().tolist() == pytest.approx([1 / 8, 1 / 4, 5 / 8])


def test_hand_worked_temperature():
    # at τ = ½ the odds 1 : 2 : 5 become 1 : 4 : 25
    logits = torch.tensor([[[0.0, math.log(2), math.log(5)]]])
    assert token_logprobs(logits, torch.tensor([[2]]), 0.5).item() == pytest.approx(math.log(25 / 30))
    assert token_logprobs(logits, torch.tensor([[0]]), 0.5).item() == pytest.approx(math.log(1 / 30))


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.5])
def test_agrees_with_the_categorical_distribution(logits, ids, temperature):
    expected = Categorical(logits=logits / temperature)
    logprobs, entropy = token_logprobs_and_entropy(logits, ids, temperature)
    torch.testing.assert_close(token_logprobs(logits, ids, temperature), expected.log_prob(ids))
    torch.testing.assert_close(logprobs, expected.log_prob(ids))
    torch.testing.assert_close(entropy, expected.entropy())


def test_both_functions_give_the_same_bits(logits, ids):
    # the rollout may use one and the update the other: the first ratio must still be exactly 1
    assert torch.equal(token_logprobs(logits, ids, 0.7), token_logprobs_and_entropy(logits, ids, 0.7)[0])


def test_half_precision_logits_are_raised_first(logits, ids):
    half = logits.bfloat16()
    logprobs, entropy = token_logprobs_and_entropy(half, ids)
    assert logprobs.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close(logprobs, Categorical(logits=half.float()).log_prob(ids))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_impossible_tokens(function):
    logits = torch.tensor([[[0.0, -torch.inf, 0.0]]], requires_grad=True)
    assert function(logits, torch.tensor([[0]])).item() == pytest.approx(-math.log(2))
    assert function(logits, torch.tensor([[1]])).item() == -torch.inf


def test_impossible_tokens_add_no_entropy_and_no_bad_gradient():
    logits = torch.tensor([[[0.0, -torch.inf, math.log(3)]]], requires_grad=True)
    _, entropy = token_logprobs_and_entropy(logits, torch.tensor([[0]]))
    assert entropy.item() == pytest.approx(math.log(4) / 4 + 3 / 4 * math.log(4 / 3))
    (gradient,) = torch.autograd.grad(entropy.sum(), logits)
    # dH/dz = −p (log p + H)
    expected = [-p * (math.log(p) + entropy.item()) if p else 0.0 for p in (1 / 4, 0, 3 / 4)]
    assert gradient.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_nan_logits_of_a_real_token_are_not_hidden():
    logits = torch.full((1, 1, 3), torch.nan)
    for result in token_logprobs_and_entropy(logits, torch.tensor([[0]])):
        assert result.isnan().all()


@pytest.mark.parametrize("function", [token_logprobs, token_logprobs_and_entropy])
@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_bad_temperature(function, temperature, logits, ids):
    with pytest.raises(ValueError, match="temperature must be a finite number above 0"):
        function(logits, ids, temperature)
