"""Swapping slow parts of transformers' models for equal, faster ones. What is computed stays the same up to rounding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.activations import FastGELUActivation, NewGELUActivation

LEAST = -1e30  # instead of log 0: times 0 it gives 0, and no gradient makes it overflow
CHUNK_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 26}  # of a (rows, V) block: small enough for the cache, large enough for all threads


def fuse_activations(model: nn.Module) -> int:
    """Replace each GELU that is written out as eight tensor operations by torch's single kernel; returns how many.

    ``0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`` is what ``nn.GELU(approximate="tanh")`` computes. Written out it reads
    and writes its input eight times forward, and training keeps most of those copies for the backward pass.
    """
    found = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, NewGELUActivation | FastGELUActivation)
    ]
    for parent, name in found:
        setattr(parent, name, nn.GELU(approximate="tanh"))
    return len(found)


def consume_logits(logits: Tensor, ids: Tensor, temperature: float, *, with_entropy: bool = True) -> tuple[Tensor, Tensor]:
    """Log-probability of each sampled token, and the entropy there, both (N,) float32; the logits are used up.

    The same numbers as :func:`ppo.logprobs.token_logprobs_and_entropy`, in one pass over blocks of rows that fit the cache.
    ``logits`` is the only (N, V) tensor: it is overwritten with the probabilities, and by the backward pass with its own gradient,
    so the caller must not read it again.

    Args:
        logits: (N, V), any floating type; computed in float32.
        ids: (N,) int64.
        temperature: the one used for sampling.
        with_entropy: False saves a pass; the entropy is then 0.
    """
    return _ConsumeLogits.apply(logits, ids, temperature, with_entropy)


class _ConsumeLogits(torch.autograd.Function):
    """With x = logits / τ, p = softmax(x) and H = −Σ p log p:

    ∂ log p(id) / ∂x_j = [j = id] − p_j        ∂H / ∂x_j = −p_j (log p_j + H)
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, temperature: float, with_entropy: bool) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.temperature = temperature
        logprobs = torch.empty(ids.shape, device=logits.device)
        entropy = torch.zeros(ids.shape, device=logits.device)
        probabilities = logits.detach()
        for rows in _blocks(logits):
            x = probabilities[rows].float()
            x = x / temperature if temperature != 1 else x
            logprob = x - x.logsumexp(dim=-1, keepdim=True)
            logprobs[rows] = logprob.gather(1, ids[rows, None]).squeeze(1)
            block = logprob.exp()
            if with_entropy:  # p log p tends to 0 with p, but 0 times −inf is NaN
                entropy[rows] = -(block * logprob.clamp_(min=LEAST)).sum(dim=-1)
            probabilities[rows] = block.to(logits.dtype)
        ctx.save_for_backward(probabilities, ids, entropy)
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_logprob: Tensor | None, by_entropy: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        gradient, ids, entropy = ctx.saved_tensors
        if by_logprob is None and by_entropy is None:
            return None, None, None, None
        for rows in _blocks(gradient):
            p = gradient[rows].float()
            block = torch.zeros_like(p)
            if by_logprob is not None:
                block -= by_logprob[rows, None] * p
                block.scatter_add_(1, ids[rows, None], by_logprob[rows, None].to(block.dtype))
            if by_entropy is not None:
                logprob = p.log().clamp_(min=LEAST)
                block -= by_entropy[rows, None] * p * (logprob + entropy[rows, None])
            gradient[rows] = (block / ctx.temperature if ctx.temperature != 1 else block).to(gradient.dtype)
        return gradient, None, None, None


def _blocks(logits: Tensor) -> list[slice]:
    size = max(CHUNK_ELEMENTS.get(logits.device.type, 1 << 20) // max(logits.shape[1], 1), 1)
    return [slice(start, start + size) for start in range(0, logits.shape[0], size)]
