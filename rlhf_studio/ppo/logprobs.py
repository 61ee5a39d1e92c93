"""From a model's logits to the log-probability of each sampled token.

One rule, everywhere: sampling divides the logits by the temperature τ, so every log-probability of policy, reference and
update is taken from logits / τ too. Otherwise the probability ratio compares two different distributions, and KL rises
without any learning (Huang et al., "The N Implementation Details of RLHF with PPO").
"""

from __future__ import annotations

import math

import torch


def log_distribution(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of every token of the vocabulary: log_softmax(logits / τ).

    Args:
        logits: (B, T, V), any floating type; half precision is raised to float32 first, since its eps (0.008 for bfloat16)
            is larger than the differences PPO lives on.
        temperature: τ > 0, the one used for sampling.

    Returns:
        (B, T, V) log-probabilities in nats.

    Raises:
        ValueError: the temperature is not a finite number above 0.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature must be a finite number above 0, got {temperature}")
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scaled = precise if temperature == 1 else precise / temperature  # no (B, T, V) copy for the usual τ = 1
    return scaled.log_softmax(dim=-1)


def token_logprobs(logits: torch.Tensor, ids: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of each sampled token: log_softmax(logits / τ)[ids].

    ``logits[:, t]`` must be the prediction *for* token t, that is, the model's output one position earlier.

    Args:
        logits: (B, T, V).
        ids: (B, T) int64 token ids in [0, V), padding included.
        temperature: τ > 0, the one used for sampling.

    Returns:
        (B, T) log-probabilities in nats, at most 0.

    Raises:
        ValueError: the temperature is not a finite number above 0.
    """
    return _at_ids(log_distribution(logits, temperature), ids)


def token_logprobs_and_entropy(logits: torch.Tensor, ids: torch.Tensor, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probability of each sampled token, and how undecided the policy was there: H = −Σ_v p(v) log p(v).

    Args:
        logits: (B, T, V); −inf (a token that cannot be sampled) is allowed and adds nothing to the entropy.
        ids: (B, T) int64 token ids in [0, V), padding included.
        temperature: τ > 0, the one used for sampling.

    Returns:
        (logprobs, entropy), both (B, T) in nats. Entropy lies between 0 (certain) and log V (uniform).

    Raises:
        ValueError: the temperature is not a finite number above 0.
    """
    logprobs = log_distribution(logits, temperature)
    # p log p tends to 0 as p does, but 0 · −inf is NaN: the clamp makes it 0 · (a large number) = 0. Not the largest there is:
    # in the backward pass it is multiplied by a gradient and must not overflow.
    finite = logprobs.clamp(min=-1e30)
    entropy = -(logprobs.exp() * finite).sum(dim=-1)
    return _at_ids(logprobs, ids), entropy


def _at_ids(logprobs: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """(B, T, V) and (B, T) → (B, T): the entry of each sampled token."""
    return logprobs.gather(dim=-1, index=ids.unsqueeze(-1)).squeeze(-1)
