"""The whole calculation against numbers that TRL 0.11's own PPOTrainer functions gave (data/trl_0_11_vectors.json).

Every expected entry must be met to 1e-5. Two of TRL's ways need a word:

- Its "mse" is our k2.
- With ``whiten_rewards`` TRL also whitens the zeros behind the mask and adds the mean to them, so that the padding after a
  response *earns* (0 − mean) / std + mean per slot, and γ = λ = 1 carries it into the response. Ours earn nothing there. To
  compare all numbers nevertheless, TRL's padding rewards are put in by hand (``rewards_as_trl_sees_them``) and ``gae`` is told
  that the padding is real; ``test_padding_earns_nothing`` holds what we do instead against an answer of its own.
"""

import json
import math
from pathlib import Path

import pytest
import torch

from rlhf_studio.ppo import (
    AdaptiveKL,
    Minibatch,
    NewPass,
    ObjectiveSettings,
    RunningMoments,
    full_kl,
    gae,
    kl_per_token,
    log_distribution,
    masked_mean,
    masked_select,
    masked_var,
    policy_loss,
    ppo_objective,
    scale_to_unit_variance,
    shape_rewards,
    token_logprobs,
    token_logprobs_and_entropy,
    whiten,
)

VECTORS = json.loads((Path(__file__).parent / "data" / "trl_0_11_vectors.json").read_text(encoding="utf-8"))
CASES = {case["config"]["kl_penalty"]: case for case in VECTORS["cases"]}
TOLERANCE = 1e-5
ENTRIES = [
    *("logprobs", "ref_logprobs", "new_logprobs", "kl", "rewards", "advantages_whitened", "returns", "ratio"),
    *("policy_loss", "value_loss_times_vf_coef", "total_loss", "policy_clipfrac", "value_clipfrac"),
    *("approxkl", "policykl", "entropy"),
]


def mask_of(case: dict) -> torch.Tensor:
    lengths = torch.tensor(case["response_lengths"])
    return torch.arange(lengths.max()) < lengths[:, None]


def rewards_as_trl_sees_them(rewards: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Scaled rewards, with TRL's leak behind the mask."""
    mean, variance = masked_mean(rewards, mask), masked_var(rewards, mask)
    return masked_select(scale_to_unit_variance(rewards, mask), mask, fill=((0 - mean) / (variance + 1e-8).sqrt() + mean).item())


def calculate(case: dict) -> dict[str, torch.Tensor]:
    """Every expected entry of a case, by our functions from its inputs. What stands behind the mask is set to 0, as in the file."""
    config, mask = case["config"], mask_of(case)
    old_logits, new_logits, ref_logits = (torch.tensor(case[f"{name}_logits"]) for name in ("old", "new", "ref"))
    ids, values, new_values, scores = (torch.tensor(case[name]) for name in ("token_ids", "values", "new_values", "scores"))

    logprobs, ref_logprobs = token_logprobs(old_logits, ids), token_logprobs(ref_logits, ids)
    new_logprobs, entropy = token_logprobs_and_entropy(new_logits, ids)
    if config["kl_penalty"] == "full":
        kl = full_kl(log_distribution(old_logits), log_distribution(ref_logits))
    else:
        kl = kl_per_token(logprobs, ref_logprobs, {"kl": "k1", "abs": "abs", "mse": "k2"}[config["kl_penalty"]])
    rewards = shape_rewards(kl, scores, mask, config["beta"])
    if config["whiten_rewards"]:
        leaking, everywhere = rewards_as_trl_sees_them(rewards, mask), torch.ones_like(mask)
        advantages, returns, _ = gae(leaking, masked_select(values, mask), everywhere, config["gamma"], config["lam"])
    else:
        advantages, returns, _ = gae(rewards, values, mask, config["gamma"], config["lam"])
    advantages = whiten(advantages, mask)

    policy = policy_loss(new_logprobs, logprobs, advantages, mask, config["cliprange"])
    settings = ObjectiveSettings(cliprange=config["cliprange"], cliprange_value=config["cliprange_value"], vf_coef=config["vf_coef"])
    batch = Minibatch(mask, logprobs, ref_logprobs, values, advantages, returns)
    loss, sums = ppo_objective(batch, NewPass(new_logprobs, new_values, entropy), settings)
    value_mean = config["vf_coef"] * sums.mean_value_loss
    per_token = [logprobs, ref_logprobs, new_logprobs, kl, rewards, advantages, returns, policy.ratio]
    scalars = [sums.mean_policy_loss, value_mean, loss / sums.tokens, sums.clip_fraction, sums.value_clip_fraction]
    scalars += [
        sums.approx_kl,
        masked_mean(kl_per_token(logprobs, new_logprobs, "k1"), mask),
        sums.mean_entropy,
    ]
    return dict(zip(ENTRIES, [masked_select(x, mask) for x in per_token] + scalars, strict=True))


def largest_difference(actual: torch.Tensor, expected: object) -> float:
    target = torch.tensor(expected)
    assert actual.shape == target.shape
    return (actual - target).abs().max().item()


@pytest.mark.parametrize("kl_penalty", ["kl", "abs", "mse", "full"])
def test_every_entry(kl_penalty):
    case = CASES[kl_penalty]
    differences = {entry: largest_difference(actual, case["expected"][entry]) for entry, actual in calculate(case).items()}
    assert {entry: difference for entry, difference in differences.items() if difference > TOLERANCE} == {}


def test_no_entry_and_no_case_is_left_out():
    assert sorted(CASES) == ["abs", "full", "kl", "mse"] and len(VECTORS["cases"]) == 4
    for case in VECTORS["cases"]:
        assert sorted(case["expected"]) == sorted(ENTRIES) == sorted(calculate(case))
    # settings that differ only in name would compare nothing
    assert {case["config"]["whiten_rewards"] for case in VECTORS["cases"]} == {True, False}
    assert any(case["expected"]["policy_clipfrac"] > 0 and case["expected"]["value_clipfrac"] > 0 for case in VECTORS["cases"])


def test_padding_earns_nothing():
    """With λ = γ = 1 the return is the sum of the scaled rewards still to come, and those end with the response."""
    case = CASES["mse"]
    mask = mask_of(case)
    rewards, values = torch.tensor(case["expected"]["rewards"]), torch.tensor(case["values"])
    _, returns, _ = gae(scale_to_unit_variance(rewards, mask), values, mask, 1.0, 1.0)
    real = rewards[mask].tolist()
    mean = math.fsum(real) / len(real)
    std = math.sqrt(math.fsum((r - mean) ** 2 for r in real) / (len(real) - 1))
    for episode, length in enumerate(case["response_lengths"]):
        scaled = [(r - mean) / std + mean for r in rewards[episode, :length].tolist()]
        expected = [math.fsum(scaled[t:]) for t in range(length)]
        assert returns[episode, :length].tolist() == pytest.approx(expected, abs=1e-5)
        difference = largest_difference(returns[episode], case["expected"]["returns"][episode])
        assert (difference <= TOLERANCE) == (length == 7)  # TRL agrees exactly where there is no padding to leak from


def test_adaptive_kl():
    expected = VECTORS["adaptive_kl"]
    control = AdaptiveKL(expected["init"], expected["target"], expected["horizon"])
    for kl, coef in expected["kl_then_coef"]:
        control.update(kl, expected["n_steps"])
        assert control.coef == pytest.approx(coef, abs=1e-9)


def test_whiten():
    expected = VECTORS["whiten"]
    x, mask = torch.tensor(expected["x"]), torch.tensor(expected["mask"]).bool()
    assert largest_difference(whiten(x, mask), expected["shift_mean_true"]) <= TOLERANCE
    assert largest_difference(scale_to_unit_variance(x, mask), expected["shift_mean_false"]) <= TOLERANCE


def test_running_moments():
    moments = RunningMoments()
    for expected in VECTORS["running_moments"]:
        batch_mean, batch_std = moments.update(torch.tensor(expected["batch"]))
        assert batch_mean == pytest.approx(expected["batch_mean"], abs=TOLERANCE)
        assert batch_std == pytest.approx(expected["batch_std"], abs=TOLERANCE)
        assert moments.mean == pytest.approx(expected["running_mean"], abs=TOLERANCE)
        assert moments.std == pytest.approx(expected["running_std"], abs=TOLERANCE)
