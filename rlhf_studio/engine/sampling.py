"""Sampling responses token by token with a key-value cache.

Our own loop rather than ``generate()``: the model's generation_config cannot leak in (top_k 50, forced tokens, repetition
penalty), the random numbers come from one generator that a checkpoint can keep, and a finished batch stops at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.policy import ResponseModel
from rlhf_studio.engine.types import NonFiniteError, TokenBatch, position_ids


@torch.no_grad()
def sample_responses(
    model: ResponseModel,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    settings: GenerationConfig,
    *,
    stop_id: int | None,
    pad_id: int,
    generator: torch.Generator,
    limits: Tensor | None = None,
) -> TokenBatch:
    """Sample one response per prompt.

    Args:
        model: the policy.
        prompt_ids, prompt_mask: (B, P), left-padded.
        stop_id: token that ends a response and belongs to it; None samples up to the limit.
        pad_id: fills the places after the end; its value never matters.
        limits: (B,) most tokens per episode; None takes ``settings.response_length`` for all.

    Returns:
        The token batch; T is the longest response.

    Raises:
        NonFiniteError: the model gives no distribution to sample from, because its logits are NaN or infinite.
    """
    limits = limits if limits is not None else torch.full((len(prompt_ids),), settings.response_length, device=prompt_ids.device)
    attention = prompt_mask
    inputs, positions, cache = prompt_ids, position_ids(prompt_mask), None
    unfinished = torch.ones(len(prompt_ids), dtype=torch.bool, device=prompt_ids.device)
    tokens: list[Tensor] = []
    masks: list[Tensor] = []
    for step in range(int(limits.max())):
        logits, cache = model.next_logits(inputs, attention, positions, cache)
        # What the model says after a row's end is not used, so it may be anything.
        probabilities = _distribution(torch.where(unfinished[:, None], logits.float(), 0.0), settings)
        if (broken := probabilities.isnan().any(dim=1)).any():
            episode = int(broken.to(torch.int8).argmax())
            raise NonFiniteError(f"the policy's logits are not finite in episode {episode}, response token {step}")
        token = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
        token = torch.where(unfinished, token, pad_id)
        tokens.append(token)
        masks.append(unfinished)
        # Under the mask a finished row keeps getting padding, which its later (unused) positions may not attend to.
        attention = torch.cat([attention, unfinished[:, None]], dim=1)
        unfinished = unfinished & (limits > step + 1)
        if stop_id is not None:
            unfinished = unfinished & (token != stop_id)
        if not unfinished.any():
            break
        inputs, positions = token[:, None], attention.long().sum(dim=1, keepdim=True) - 1
    return TokenBatch(prompt_ids, prompt_mask, torch.stack(tokens, dim=1), torch.stack(masks, dim=1))


def _distribution(logits: Tensor, settings: GenerationConfig) -> Tensor:
    """(B, V) logits to the probabilities that are sampled from."""
    logits = logits / settings.temperature
    if settings.top_k and settings.top_k < logits.shape[-1]:
        smallest = logits.topk(settings.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if settings.top_p < 1:
        logits = _keep_nucleus(logits, settings.top_p)
    return logits.softmax(dim=-1)


def _keep_nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set of tokens whose probability reaches ``top_p``; the likeliest always stays."""
    ordered, order = logits.sort(dim=-1, descending=True)
    probability = ordered.softmax(dim=-1)
    before = probability.cumsum(dim=-1) - probability
    ordered = ordered.masked_fill(before >= top_p, -torch.inf)
    return torch.empty_like(logits).scatter(-1, order, ordered)
