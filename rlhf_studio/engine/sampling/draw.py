"""Drawing one token per row from a model's logits, and what is noted on the way."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import Cache

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.models.policy import Policy


class Drawn(NamedTuple):
    """One token per row.

    Attributes:
        tokens: (b,) int64 ids.
        logprobs, entropy: (b,) of the whole distribution at the sampling temperature, whatever was cut from it.
        values: (b,) of the state before the token; 0 when the critic has its own trunk.
        distribution, excess: (b, V) and (b, 1); log-probabilities are ``distribution − excess``.
    """

    tokens: Tensor
    logprobs: Tensor
    entropy: Tensor
    values: Tensor
    distribution: Tensor
    excess: Tensor


def draw_next(
    policy: Policy, settings: GenerationConfig, ids: Tensor, attention: Tensor, positions: Tensor, uniforms: Tensor, cache: Cache
) -> Drawn:
    """Ask the policy what follows ``ids`` (b, L) and draw from it with ``uniforms`` (b,); ``cache`` grows by L."""
    logits, hidden = policy.next_logits(ids, attention, positions, cache)
    values = policy.values(hidden) if policy.critic is None else torch.zeros_like(logits[:, 0], dtype=torch.float32)
    return draw(logits, values, uniforms, settings)


def draw(logits: Tensor, values: Tensor, uniforms: Tensor, settings: GenerationConfig) -> Drawn:
    """Draw by the inverse of the cumulative distribution. Nothing here depends on how many rows there are, so it can be recorded."""
    x = logits.float() / settings.temperature
    x -= x.amax(dim=-1, keepdim=True)
    weights = x.exp()
    total = weights.sum(dim=-1, keepdim=True)
    # The sum needs more digits than float32 has: a vocabulary's tail of tiny probabilities would vanish beside 1.
    cumulated = _cut(x, weights, settings).cumsum(dim=-1, dtype=torch.float64)
    end = cumulated[:, -1:]
    target = torch.minimum(uniforms[:, None] * end, torch.nextafter(end, torch.zeros_like(end)))
    tokens = torch.searchsorted(cumulated, target, right=True).clamp_(max=logits.shape[1] - 1)
    excess = total.log()
    mean = weights.mul_(x.clamp(min=torch.finfo(torch.float32).min)).sum(dim=-1, keepdim=True) / total
    return Drawn(tokens.squeeze(1), (x.gather(1, tokens) - excess).squeeze(1), (excess - mean).squeeze(1), values, x, excess)


def _cut(x: Tensor, weights: Tensor, settings: GenerationConfig) -> Tensor:
    """What is sampled from, up to a factor of each row: all of ``weights`` = exp(``x``) (b, V), the k largest, or the nucleus."""
    if settings.top_k and settings.top_k < x.shape[-1]:
        smallest = x.topk(settings.top_k, dim=-1).values[:, -1:]
        weights = weights.masked_fill(x < smallest, 0.0)
    return _keep_nucleus(weights / weights.sum(dim=-1, keepdim=True), settings.top_p) if settings.top_p < 1 else weights


def _keep_nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set of tokens whose probability reaches ``top_p``; the likeliest always stays."""
    ordered, order = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probabilities).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))
