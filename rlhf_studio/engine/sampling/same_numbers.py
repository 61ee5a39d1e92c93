"""Whether a faster decoding step gives the model's own numbers: for which models it is tried at all, and the comparison."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.models.kv_cache import PreallocatedLayer
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.sampling.draw import DecodingStep, StepInputs, draw_next
from rlhf_studio.engine.types import position_ids
from rlhf_studio.inputs.families import TESTED_FAMILIES
from rlhf_studio.language import S_

GROWING_ROTATIONS = {"dynamic", "longrope"}  # rotary embeddings whose frequencies depend on the length: a trace would keep the first ones
TOLERANCE = 1e-4  # absolute and relative: rounding adds up over many layers, and a wrong step is wrong by far more
BFLOAT16_TOLERANCE = 0.05  # of what tells a row's tokens apart: each logit has 8 binary digits
SIZES = ((3, 7), (1, 2))  # rows and tokens, other than any that a step was made with


class CannotTrace(Exception):
    """A model's decoding step cannot be traced or captured; the message says why, for people."""


def why_not(policy: Policy) -> str:
    """Why no faster step is made for this model; empty where it can be tried."""
    config = policy.model.config
    if config.model_type not in TESTED_FAMILIES:
        return S_(f"models of the family {config.model_type} are not traced")
    if not all(isinstance(layer, PreallocatedLayer) for layer in policy.new_cache(1).layers):
        return S_("its key-value cache is of a kind of its own")
    rotation = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return S_(f"its rotary embedding is {rotation}") if rotation in GROWING_ROTATIONS else ""


def draws_alike(first: GenerationConfig, second: GenerationConfig) -> bool:
    """Whether a step that was made with the one draws tokens as the other asks."""
    return all(getattr(first, name) == getattr(second, name) for name in ("temperature", "top_k", "top_p"))


def example(policy: Policy, rows: int, length: int, step: DecodingStep | None = None) -> StepInputs:
    """Inputs of a step after ``length`` random tokens; the first row has one token less than the others, and padding instead.

    The cache is that of ``step``, or None: of the model itself.
    """
    layer: Any = policy.model.get_input_embeddings()
    embedding = layer.weight
    device, generator = embedding.device, torch.Generator().manual_seed(rows)
    drawn = torch.randint(len(embedding), (rows, length + 1), generator=generator).to(device)
    attention = torch.ones_like(drawn)
    attention[0, 0] = 0
    positions = position_ids(attention)
    cache = step.new_cache(rows, length + 1) if step else policy.new_cache(length + 1)
    policy.next_logits(drawn[:, :-1], attention[:, :-1], positions[:, :-1], cache)
    uniforms = torch.rand(rows, generator=generator, dtype=torch.float64).to(device)
    return StepInputs(drawn[:, -1:], attention, positions[:, -1:], uniforms, cache)


def require_same_numbers(policy: Policy, step: DecodingStep, settings: GenerationConfig, compute: Compute) -> None:
    """Compare ``step`` with the model itself, at sizes of its own. Raises :class:`CannotTrace` when they differ.

    In float32 all that a step gives must agree; in bfloat16 the distribution must, since a token drawn may be another one.
    """
    for rows, length in SIZES:
        with compute.autocast():
            ours = step(example(policy, rows, length, step))
            theirs = draw_next(policy, settings, example(policy, rows, length))
        if compute.dtype is torch.float32:
            pairs = list(zip(ours, theirs, strict=True))
            same = all(a.shape == b.shape and torch.allclose(a, b, atol=TOLERANCE, rtol=TOLERANCE) for a, b in pairs)
        else:
            same = _close(ours.shifted_logits - ours.log_total, theirs.shifted_logits - theirs.log_total)
        if not same:
            raise CannotTrace("its traced step gives other numbers than the model")


def _close(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape:
        return False
    spread = (theirs - theirs.mean(dim=-1, keepdim=True)).norm()
    return bool((ours - theirs).norm() <= BFLOAT16_TOLERANCE * spread + TOLERANCE)
