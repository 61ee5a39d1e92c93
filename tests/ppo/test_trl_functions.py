"""Our functions against those of TRL 1.12, the last release with PPO. Inputs are finite behind the mask, since TRL multiplies."""

import os

import pytest
import torch

from rlhf_studio.ppo import masked_mean, masked_var, scale_to_unit_variance, token_logprobs, token_logprobs_and_entropy, whiten

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
trl_ppo = pytest.importorskip("trl.experimental.ppo.ppo_trainer", reason="trl 1.12 is not installed")
trl_utils = pytest.importorskip("trl.trainer.utils", reason="trl 1.12 is not installed")


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_masked_statistics(scale, mask, noise):
    x = scale * noise(4, 6)
    torch.testing.assert_close(masked_mean(x, mask), trl_ppo.masked_mean(x, mask))
    torch.testing.assert_close(masked_var(x, mask), trl_ppo.masked_var(x, mask))
    torch.testing.assert_close(masked_var(x, mask, unbiased=False), trl_ppo.masked_var(x, mask, unbiased=False))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_both_whitenings(scale, mask, noise):
    x = scale * noise(4, 6) + 2
    torch.testing.assert_close(whiten(x, mask)[mask], trl_ppo.masked_whiten(x, mask)[mask], rtol=0, atol=1e-5)
    torch.testing.assert_close(
        scale_to_unit_variance(x, mask)[mask], trl_ppo.masked_whiten(x, mask, shift_mean=False)[mask], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_and_entropy(temperature, noise):
    logits = 3 * noise(4, 6, 50)
    ids = torch.randint(0, 50, (4, 6), generator=torch.Generator().manual_seed(1))
    logprobs, entropy = token_logprobs_and_entropy(logits, ids, temperature)
    torch.testing.assert_close(token_logprobs(logits, ids, temperature), trl_utils.selective_log_softmax(logits / temperature, ids))
    torch.testing.assert_close(logprobs, trl_utils.selective_log_softmax(logits / temperature, ids))
    torch.testing.assert_close(entropy, trl_utils.entropy_from_logits(logits / temperature))
