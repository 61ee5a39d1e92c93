import math

import pytest
import torch

from rlhf_studio.ppo import full_kl, kl_per_token

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


def test_k3_keeps_small_differences():
    # d²/2 at d = 1e-4 is 5e-9; exp(−d) − 1 + d in float32 without expm1 would give 0 or 6e-8
    tiny = kl_per_token(torch.tensor([[1e-4]]), torch.tensor([[0.0]]), "k3").item()
    assert tiny == pytest.approx(5e-9, rel=1e-3)


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


@pytest.mark.parametrize("estimator", ["k4", "", "full", "K1"])
def test_unknown_estimator(estimator):
    with pytest.raises(ValueError, match="estimator must be one of k1, k2, k3, abs .*, got"):
        kl_per_token(torch.zeros(1, 1), torch.zeros(1, 1), estimator)
