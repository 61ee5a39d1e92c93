import math

import pytest
import torch
from torch.distributions import Categorical, kl_divergence

from rlhf_studio.ppo import full_kl, kl_per_token, token_logprobs

P = torch.tensor([0.5, 0.3, 0.15, 0.05])
Q = torch.tensor([0.25, 0.25, 0.3, 0.2])
SAMPLED = ["k1", "k2", "k3", "abs"]


def test_hand_worked():
    # d = log 2, 0, −log 4
    logprobs, ref_logprobs = torch.tensor([[0.5, 0.5, 0.2]]).log(), torch.tensor([[0.25, 0.5, 0.8]]).log()
    two, four = math.log(2), math.log(4)
    expected = {
        "k1": [two, 0, -four],
        "k2": [two**2 / 2, 0, four**2 / 2],
        "k3": [1 / 2 - 1 + two, 0, 4 - 1 - four],
        "abs": [two, 0, four],
    }
    for estimator, numbers in expected.items():
        assert kl_per_token(logprobs, ref_logprobs, estimator)[0].tolist() == pytest.approx(numbers, abs=1e-7)


def test_full_hand_worked():
    # p = (½, ½), q = (¼, ¾): ½ log 2 + ½ log ⅔
    p, q = torch.tensor([[[0.5, 0.5]]]).log(), torch.tensor([[[0.25, 0.75]]]).log()
    assert full_kl(p, q).item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    # and it is not symmetric
    assert full_kl(q, p).item() == pytest.approx(0.25 * math.log(1 / 2) + 0.75 * math.log(3 / 2))


def test_full_agrees_with_torch_distributions(noise):
    logits, ref_logits = 2 * noise(4, 6, 9), 2 * noise(4, 6, 9)
    expected = kl_divergence(Categorical(logits=logits), Categorical(logits=ref_logits))
    torch.testing.assert_close(full_kl(logits.log_softmax(-1), ref_logits.log_softmax(-1)), expected)


@pytest.mark.parametrize("estimator", SAMPLED)
def test_equal_policies_have_no_kl(estimator, noise):
    logprobs = noise(4, 6)
    assert (kl_per_token(logprobs, logprobs, estimator) == 0).all()


def test_full_of_equal_policies_is_zero(noise):
    logprobs = noise(4, 6, 9).log_softmax(-1)
    assert (full_kl(logprobs, logprobs) == 0).all()


@pytest.mark.parametrize("estimator", ["k2", "k3", "abs"])
def test_never_negative(estimator, noise):
    assert (kl_per_token(3 * noise(40, 60), 3 * noise(40, 60), estimator) >= 0).all()


def test_sign_of_k1_is_that_of_policy_minus_reference():
    # the policy likes this token more than the reference does: positive, so that it is charged
    assert kl_per_token(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), "k1").item() == 2


def test_k3_keeps_small_differences():
    # d²/2 at d = 1e-4 is 5e-9; exp(−d) − 1 + d in float32 without expm1 would give 0 or 6e-8
    tiny = kl_per_token(torch.tensor([[1e-4]]), torch.tensor([[0.0]]), "k3").item()
    assert tiny == pytest.approx(5e-9, rel=1e-3)


# ---- the estimators against the exact KL of a known pair of distributions ----

EXACT = (P * (P / Q).log()).sum().item()


def expectation_under_policy(estimator: str) -> float:
    """Σ_v p(v) · estimate(v), exactly."""
    return (P * kl_per_token(P.log(), Q.log(), estimator)).sum().item()


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_k1_and_k3_are_unbiased(estimator):
    assert expectation_under_policy(estimator) == pytest.approx(EXACT, rel=1e-6)


def test_k2_and_abs_are_biased_but_have_their_own_value():
    squares = [0.5 * math.log(p / q) ** 2 for p, q in zip(P.tolist(), Q.tolist(), strict=True)]
    distances = [abs(math.log(p / q)) for p, q in zip(P.tolist(), Q.tolist(), strict=True)]
    assert expectation_under_policy("k2") == pytest.approx(sum(p * s for p, s in zip(P.tolist(), squares, strict=True)), rel=1e-6)
    assert expectation_under_policy("abs") == pytest.approx(sum(p * d for p, d in zip(P.tolist(), distances, strict=True)), rel=1e-6)
    assert abs(expectation_under_policy("k2") - EXACT) > 0.01
    assert abs(expectation_under_policy("abs") - EXACT) > 0.1


@pytest.mark.parametrize("estimator", ["k1", "k3", "full"])
def test_monte_carlo_over_whole_responses(estimator):
    """Three-word language, two tokens, the second depends on the first: sampled sums must average to the exact sequence KL."""
    generator = torch.Generator().manual_seed(7)
    first, ref_first = (torch.randn(3, generator=generator).log_softmax(-1) for _ in range(2))
    second, ref_second = (torch.randn(3, 3, generator=generator).log_softmax(-1) for _ in range(2))
    joint, ref_joint = first[:, None] + second, ref_first[:, None] + ref_second  # all nine responses
    exact = (joint.exp() * (joint - ref_joint)).sum().item()

    n = 100_000
    one = torch.multinomial(first.exp(), n, replacement=True, generator=generator)
    two = torch.multinomial(second.exp()[one], 1, generator=generator).squeeze(1)
    ids = torch.stack([one, two], dim=1)
    logits = torch.stack([first.expand(n, 3), second[one]], dim=1)
    ref_logits = torch.stack([ref_first.expand(n, 3), ref_second[one]], dim=1)
    if estimator == "full":
        per_token = full_kl(logits, ref_logits)
    else:
        per_token = kl_per_token(token_logprobs(logits, ids), token_logprobs(ref_logits, ids), estimator)
    samples = per_token.sum(dim=1)
    standard_error = samples.std().item() / math.sqrt(n)
    assert abs(samples.mean().item() - exact) < 4 * standard_error
    assert standard_error < 0.02 * exact  # so that the line above can fail


# ---- corners ----


def test_full_where_a_token_is_impossible():
    never = torch.tensor([[[0.0, -torch.inf]]]).log_softmax(-1)
    even = torch.tensor([[[0.0, 0.0]]]).log_softmax(-1)
    assert full_kl(never, never).item() == 0
    assert full_kl(never, even).item() == pytest.approx(math.log(2))
    assert full_kl(even, never).item() == math.inf


def test_full_has_a_finite_gradient_where_a_token_is_impossible():
    logits = torch.tensor([[[0.3, -torch.inf, 0.1]]], requires_grad=True)
    full_kl(logits.log_softmax(-1), torch.tensor([[[0.0, -torch.inf, 0.0]]]).log_softmax(-1)).sum().backward()
    assert logits.grad.isfinite().all() and logits.grad[0, 0, 1] == 0
    assert logits.grad[0, 0, 0] > 0 > logits.grad[0, 0, 2]


def test_nan_at_a_real_token_is_not_hidden():
    nan = torch.full((1, 1, 3), torch.nan)
    assert full_kl(nan, nan).isnan().all()
    for estimator in SAMPLED:
        assert kl_per_token(nan[..., 0], nan[..., 0], estimator).isnan().all()


@pytest.mark.parametrize("estimator", SAMPLED)
def test_gradcheck(estimator, noise):
    inputs = [noise(4, 6, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda p, q: kl_per_token(p, q, estimator), inputs)


def test_full_gradcheck(noise):
    inputs = [noise(2, 3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(lambda p, q: full_kl(p.log_softmax(-1), q.log_softmax(-1)), inputs)


@pytest.mark.parametrize("estimator", ["k4", "", "full", "K1"])
def test_unknown_estimator(estimator):
    with pytest.raises(ValueError, match="estimator must be one of k1, k2, k3, abs .*, got"):
        kl_per_token(torch.zeros(1, 1), torch.zeros(1, 1), estimator)
