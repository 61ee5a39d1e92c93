"""Which single change would make a supervised run fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlhf_studio.config import SFTRunConfig, SupervisedConfig
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.savings import Estimate, MemorySaving, first_that_fits, worthwhile
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate
from rlhf_studio.language import N_, S_

SHORTEST = 16  # tokens: a shorter limit of the examples would leave nothing to learn


def cheapest_change(config: SupervisedConfig, now: MemoryEstimate, estimate: Estimate[SupervisedConfig]) -> MemorySaving | None:
    """The first change that makes the run fit; None when none does alone, or when it fits already."""
    return first_that_fits(now, lambda: worthwhile(config, now, estimate, _candidates(config, now.device)))


def _candidates(config: SupervisedConfig, device: Device) -> Iterator[tuple[str, Any, str]]:
    """(setting, value, price), from what costs nothing but time to what changes the run."""
    size, stage = config.training.micro_batch, config.stage
    while size > 1:
        size //= 2
        yield f"{stage}.micro_batch_size", size, N_("a little slower, same result")
    if not config.model.gradient_checkpointing:
        yield "model.gradient_checkpointing", True, N_("slower updates, same result")
    if device.kind == "cuda" and device.bfloat16 and config.model.dtype == "float32":
        yield "model.dtype", "bfloat16", N_("rounds more")
    fresh = isinstance(config, SFTRunConfig) and config.model.fresh
    if not config.lora.enabled and not fresh:
        yield "lora.enabled", True, N_("trains adapters instead of all weights")
    elif device.kind == "cuda" and config.model.quantization == "none" and config.lora.enabled and config.lora.off_is_start and not fresh:
        yield "model.quantization", "4bit", N_("rounds the frozen base; needs bitsandbytes")
    most = config.data.max_tokens
    yield from (("data.max_tokens", most // part, S_("shorter examples")) for part in (2, 4) if most // part >= SHORTEST)
