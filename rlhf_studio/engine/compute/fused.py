"""Swapping slow parts of transformers' models for equal, faster ones. What is computed stays the same up to rounding."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.activations import FastGELUActivation, GELUTanh, NewGELUActivation

LEAST = -1e30  # instead of log 0: times 0 it gives 0, and no gradient makes it overflow
CHUNK_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 26}  # of a (rows, V) block: small enough for the cache, large enough for all threads
GELU_BLOCK = 1 << 18  # numbers at a time


def fuse_activations(model: nn.Module) -> int:
    """Replace each tanh-GELU, written out as eight tensor operations or torch's own, by :class:`TanhGELU`; returns how many.

    Written out it reads and writes its input eight times forward, and training keeps most of those copies for the backward pass.
    """
    found = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, NewGELUActivation | FastGELUActivation | GELUTanh)
    ]
    for parent, name in found:
        setattr(parent, name, TanhGELU())
    return len(found)


class TanhGELU(nn.Module):
    """``0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``, which is ``x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))``.

    On a CPU torch's kernel spends its time in the tanh, twice: a sigmoid costs a quarter. The derivative is made on the way
    forward, while everything is in the cache, and kept instead of the input, so that the backward pass is one product.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype is not torch.float32:
            return nn.functional.gelu(x, approximate="tanh")
        if x.requires_grad and torch.is_grad_enabled():
            return _TanhGELU.apply(x)
        return _few_tanh_gelu(x) if torch.jit.is_tracing() else _tanh_gelu(x, None)


GELU_SCALE, GELU_CUBE = 2 * math.sqrt(2 / math.pi), 0.044715


def _few_tanh_gelu(x: Tensor) -> Tensor:
    """The activation of a few numbers at once; nothing in it depends on how many they are, so it can be recorded."""
    return x * torch.add(torch.tensor(GELU_SCALE), x * x, alpha=GELU_SCALE * GELU_CUBE).mul_(x).sigmoid_()


def _tanh_gelu(x: Tensor, slope: Tensor | None) -> Tensor:
    """The activation; its derivative is written to ``slope``, of the size of ``x``."""
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    inputs, outputs = x.reshape(-1).split(GELU_BLOCK), result.view(-1).split(GELU_BLOCK)
    slopes = [None] * len(inputs) if slope is None else slope.view(-1).split(GELU_BLOCK)
    scratch, scale = torch.empty((2, min(GELU_BLOCK, x.numel()))), torch.tensor(GELU_SCALE)
    for part, output, to_slope in zip(inputs, outputs, slopes, strict=True):
        square, share = scratch[:, : part.numel()]
        torch.mul(part, part, out=square)
        torch.add(scale, square, alpha=GELU_SCALE * GELU_CUBE, out=share).mul_(part).sigmoid_()
        torch.mul(part, share, out=output)
        if to_slope is not None:  # share + output (1 - share) times the exponent's derivative
            torch.add(scale, square, alpha=3 * GELU_SCALE * GELU_CUBE, out=square).mul_(output)
            torch.add(share, square, out=to_slope).addcmul_(square, share, value=-1)
    return result


class _TanhGELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        slope = torch.empty_like(x, memory_format=torch.contiguous_format)
        ctx.save_for_backward(slope)
        return _tanh_gelu(x, slope)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return slope.mul_(gradient)  # into its own place: nobody reads it a second time


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
            x = x.div_(temperature) if temperature != 1 else x
            x -= x.amax(dim=-1, keepdim=True)
            weights = x.exp()
            total = weights.sum(dim=-1, keepdim=True)
            log_total = total.log().squeeze(1)
            logprobs[rows] = x.gather(1, ids[rows, None]).squeeze(1) - log_total
            if with_entropy:  # w x tends to 0 with w, but 0 times −inf is NaN
                entropy[rows] = log_total - x.clamp_(min=LEAST).mul_(weights).sum(dim=-1) / total.squeeze(1)
            if ctx.needs_input_grad[0]:
                probabilities[rows] = weights.div_(total)
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
            factor = torch.zeros_like(ids[rows, None], dtype=p.dtype) if by_logprob is None else -by_logprob[rows, None]
            if by_entropy is not None:
                factor = factor - by_entropy[rows, None] * (p.log().clamp_(min=LEAST) + entropy[rows, None])
            p = p.mul_(factor)
            if by_logprob is not None:
                p.scatter_add_(1, ids[rows, None], by_logprob[rows, None].to(p.dtype))
            gradient[rows] = p.div_(ctx.temperature) if ctx.temperature != 1 else p
        return gradient, None, None, None


def _blocks(logits: Tensor) -> list[slice]:
    size = max(CHUNK_ELEMENTS.get(logits.device.type, 1 << 20) // max(logits.shape[1], 1), 1)
    return [slice(start, start + size) for start in range(0, logits.shape[0], size)]
