"""Faster computations of the same numbers, up to rounding: GELU, and softmax with log-probability and entropy in the logits' memory."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.activations import FastGELUActivation, GELUTanh, NewGELUActivation

LOG_OF_ZERO = -1e30  # in place of -inf: 0 times it is 0 and not NaN, and its products with gradients do not overflow
CHUNK_ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 26}  # numbers in a block of logits (rows, V): fits the cache, and keeps all threads busy
GELU_BLOCK = 1 << 18  # numbers that are computed at a time


def fuse_activations(model: nn.Module) -> int:
    """Replace each GELU with tanh, transformers' or torch's, by :class:`TanhGELU`. Returns the number of replaced layers.

    transformers writes it as eight tensor operations: eight times as much memory is read and written in the forward pass, and training
    keeps most of the results for the backward pass.
    """
    replaceable = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, NewGELUActivation | FastGELUActivation | GELUTanh)
    ]
    for parent, name in replaceable:
        setattr(parent, name, TanhGELU())
    return len(replaceable)


class TanhGELU(nn.Module):
    """``0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``, which is ``x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))``.

    On a CPU torch's kernel spends most of its time in tanh, forward and backward; a sigmoid costs a quarter of it. The derivative is
    computed in the forward pass, while the numbers are in the processor's cache, and is kept instead of the input: the backward pass is
    then one product.
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype is not torch.float32:
            return nn.functional.gelu(x, approximate="tanh")
        if x.requires_grad and torch.is_grad_enabled():
            result: Tensor = _TanhGELU.apply(x)
            return result
        return _traceable_tanh_gelu(x) if torch.jit.is_tracing() else _tanh_gelu(x, None)


GELU_SCALE, GELU_CUBE = 2 * math.sqrt(2 / math.pi), 0.044715


def _traceable_tanh_gelu(x: Tensor) -> Tensor:
    """The activation in one piece, for a decoding step's few numbers. No operation depends on their count, so it can be traced."""
    return x * torch.add(torch.tensor(GELU_SCALE), x * x, alpha=GELU_SCALE * GELU_CUBE).mul_(x).sigmoid_()


def _tanh_gelu(x: Tensor, slope: Tensor | None) -> Tensor:
    """The activation, block by block. Its derivative is written to ``slope``, a tensor of the shape of ``x``, when there is one."""
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    inputs, outputs = x.reshape(-1).split(GELU_BLOCK), result.view(-1).split(GELU_BLOCK)
    slopes = [None] * len(inputs) if slope is None else slope.view(-1).split(GELU_BLOCK)
    scratch, scale = torch.empty((2, min(GELU_BLOCK, x.numel()))), torch.tensor(GELU_SCALE)
    for part, output, to_slope in zip(inputs, outputs, slopes, strict=True):
        square, gate = scratch[:, : part.numel()]
        torch.mul(part, part, out=square)
        torch.add(scale, square, alpha=GELU_SCALE * GELU_CUBE, out=gate).mul_(part).sigmoid_()
        torch.mul(part, gate, out=output)
        if to_slope is not None:  # gate + output (1 - gate) times the derivative of the sigmoid's argument
            torch.add(scale, square, alpha=3 * GELU_SCALE * GELU_CUBE, out=square).mul_(output)
            torch.add(gate, square, out=to_slope).addcmul_(square, gate, value=-1)
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
        slope: Tensor = ctx.saved_tensors[0]
        return slope.mul_(gradient)  # in place: the saved derivative is needed only once


def softmax_terms(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numerators e (n, V) and denominators s (n, 1) of the softmax over each row of ``x`` (n, V) float32.

    ``x`` is overwritten with x − max(x), so that exp cannot overflow. Then softmax is e / s and log-softmax is x − log s.
    No operation depends on n, so this can be traced.
    """
    x -= x.amax(dim=-1, keepdim=True)
    weights = x.exp()
    return weights, weights.sum(dim=-1, keepdim=True)


def consume_logits(logits: Tensor, ids: Tensor, temperature: float, *, with_entropy: bool = True) -> tuple[Tensor, Tensor]:
    """Log-probability of each sampled token, and the entropy of its distribution, both (N,) float32. The logits are overwritten.

    The same numbers as :func:`ppo.logprobs.token_logprobs_and_entropy`, in one pass over blocks of rows that fit the cache.
    No second (N, V) tensor is made: ``logits`` is overwritten with the probabilities, and in the backward pass with its own gradient,
    so the caller must not use it again.

    Args:
        logits: (N, V), any floating type; computed in float32.
        ids: (N,) int64, the sampled tokens.
        temperature: the sampling temperature, by which the logits are divided.
        with_entropy: False saves a pass over the logits; the entropy is then 0.
    """
    logprobs, entropy = _ConsumeLogits.apply(logits, ids, temperature, with_entropy)
    return logprobs, entropy


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
            weights, total = softmax_terms(x)
            log_total = total.log().squeeze(1)
            logprobs[rows] = x.gather(1, ids[rows, None]).squeeze(1) - log_total
            if with_entropy:  # a token of probability 0 adds 0 to the entropy, but 0 times -inf would be NaN
                entropy[rows] = log_total - x.clamp_(min=LOG_OF_ZERO).mul_(weights).sum(dim=-1) / total.squeeze(1)
            if ctx.needs_input_grad[0]:
                probabilities[rows] = weights.div_(total)
        ctx.save_for_backward(probabilities, ids, entropy)
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logprobs: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        gradient, ids, entropy = ctx.saved_tensors
        if grad_logprobs is None and grad_entropy is None:
            return None, None, None, None
        for rows in _blocks(gradient):
            p = gradient[rows].float()
            factor = torch.zeros_like(ids[rows, None], dtype=p.dtype) if grad_logprobs is None else -grad_logprobs[rows, None]
            if grad_entropy is not None:
                factor = factor - grad_entropy[rows, None] * (p.log().clamp_(min=LOG_OF_ZERO) + entropy[rows, None])
            p = p.mul_(factor)
            if grad_logprobs is not None:
                p.scatter_add_(1, ids[rows, None], grad_logprobs[rows, None].to(p.dtype))
            gradient[rows] = p.div_(ctx.temperature) if ctx.temperature != 1 else p
        return gradient, None, None, None


def _blocks(logits: Tensor) -> list[slice]:
    """The rows of ``logits`` (N, V) in blocks of at most :data:`CHUNK_ELEMENTS` numbers, but at least one row."""
    size = max(CHUNK_ELEMENTS.get(logits.device.type, 1 << 20) // max(logits.shape[1], 1), 1)
    return [slice(start, start + size) for start in range(0, logits.shape[0], size)]
