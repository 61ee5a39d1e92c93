"""Drawing one token per row from a model's logits, with its log-probability, entropy and value.

Shapes: b rows of the batch, L new tokens per row (the prompt at first, then 1), V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import Cache

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.fused import softmax_terms
from rlhf_studio.engine.models.policy import Policy


class StepInputs(NamedTuple):
    """What one decoding step is computed from.

    Attributes:
        ids: (b, L) int64, the tokens that the model has not had as input yet.
        attention: (b, tokens in the cache + L) which tokens are attended to.
        positions: (b, L) position ids of ``ids``.
        uniforms: (b,) float64 in [0, 1), the random number of each row.
        cache: the key-value cache; the step adds L tokens to it.
    """

    ids: Tensor
    attention: Tensor
    positions: Tensor
    uniforms: Tensor
    cache: Cache


class Drawn(NamedTuple):
    """One token per row.

    Attributes:
        tokens: (b,) int64 ids.
        logprobs, entropy: (b,) of the full distribution at the sampling temperature, before top-k and top-p.
        values: (b,) of the state before the token; filled with 0, which nothing reads, unless ``policy.values_while_sampling``.
        shifted_logits: (b, V) logits over the temperature, minus their maximum.
        log_total: (b, 1) logarithm of the sum of exp(shifted_logits); log-probabilities are ``shifted_logits − log_total``.
    """

    tokens: Tensor
    logprobs: Tensor
    entropy: Tensor
    values: Tensor
    shifted_logits: Tensor
    log_total: Tensor


class DecodingStep:
    """Computes the next token of each row by the model itself. A traced or static step does the same faster.

    Attributes:
        by_halves: whether ended rows leave the batch only when half of it goes: a static step has a graph for each number of rows.
    """

    by_halves = False

    def __init__(self, policy: Policy, settings: GenerationConfig):
        self._policy, self._settings = policy, settings

    def __call__(self, inputs: StepInputs) -> Drawn:
        """One step; see :func:`draw_next`."""
        return draw_next(self._policy, self._settings, inputs)

    def new_cache(self, rows: int, max_length: int) -> Cache:
        """An empty cache for ``rows`` of up to ``max_length`` tokens, which the step's inputs must have."""
        return self._policy.new_cache(max_length)

    def rest(self) -> None:
        """After a rollout: memory that only sampling needs becomes free."""


def draw_next(policy: Policy, settings: GenerationConfig, inputs: StepInputs) -> Drawn:
    """One forward pass of the policy, and one token per row drawn from its distribution."""
    logits, hidden = policy.next_logits(inputs.ids, inputs.attention, inputs.positions, inputs.cache)
    values = policy.values(hidden) if policy.values_while_sampling else torch.zeros_like(logits[:, 0], dtype=torch.float32)
    return draw(logits, values, inputs.uniforms, settings)


def draw(logits: Tensor, values: Tensor, uniforms: Tensor, settings: GenerationConfig) -> Drawn:
    """Draw from ``logits`` (b, V) by the inverse of the cumulative distribution. No operation depends on b, so this can be traced."""
    x = logits.float() / settings.temperature
    weights, total = softmax_terms(x)
    # float64, because float32 has too few digits: a large vocabulary's many tiny probabilities would be lost beside a sum near 1.
    cumulated = truncated(x, weights, settings).cumsum(dim=-1, dtype=torch.float64)
    end = cumulated[:, -1:]
    target = torch.minimum(uniforms[:, None] * end, torch.nextafter(end, torch.zeros_like(end)))
    tokens = torch.searchsorted(cumulated, target, right=True).clamp_(max=logits.shape[1] - 1)
    log_total = total.log()
    mean = weights.mul_(x.clamp(min=torch.finfo(torch.float32).min)).sum(dim=-1, keepdim=True) / total
    return Drawn(tokens.squeeze(1), (x.gather(1, tokens) - log_total).squeeze(1), (log_total - mean).squeeze(1), values, x, log_total)


def truncated(x: Tensor, weights: Tensor, settings: GenerationConfig) -> Tensor:
    """``weights`` = exp(``x``) (b, V) after top-k and top-p, up to a factor per row: all, the k largest, or the nucleus; 0 elsewhere."""
    if settings.top_k and settings.top_k < x.shape[-1]:
        smallest = x.topk(settings.top_k, dim=-1).values[:, -1:]
        weights = weights.masked_fill(x < smallest, 0.0)
    return _keep_nucleus(weights / weights.sum(dim=-1, keepdim=True), settings.top_p) if settings.top_p < 1 else weights


def _keep_nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set of tokens whose probability together reaches ``top_p``; the likeliest token is always kept."""
    ordered, order = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probabilities).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))
