"""Which single change would make a run fit into memory, and what each one saves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from rlhf_studio.config import GenerationConfig, RunConfig, StageConfig
from rlhf_studio.config.io import ConfigError, with_values
from rlhf_studio.inputs.estimate.counts import rows_together
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate
from rlhf_studio.language import N_


@dataclass(frozen=True)
class MemorySaving:
    """One setting with another value.

    Attributes:
        setting: dotted name; ``value`` as it would be typed.
        saves: bytes off the high estimate.
        fits: whether the run then fits into what is free.
        price: what is given up for it, in a few words.
    """

    setting: str
    value: str
    saves: int
    fits: bool
    price: str


_Config = TypeVar("_Config", bound=StageConfig)
Estimate = Callable[[_Config], MemoryEstimate]
"""The memory of the same models on the same device, under other settings."""


Candidates = Iterable[tuple[str, Any, str]]
"""Settings with other values and the price of each, from what costs nothing but time to what changes the run."""


def changes(config: RunConfig, now: MemoryEstimate, estimate: Estimate[RunConfig]) -> list[MemorySaving]:
    """Every change of one setting that saves memory, cheapest first. ``now``: what the run needs as it is."""
    return worthwhile(config, now, estimate, _candidates(config, now.device))


def worthwhile(config: _Config, now: MemoryEstimate, estimate: Estimate[_Config], candidates: Candidates) -> list[MemorySaving]:
    """Those of the ``candidates`` that save memory, with what each saves."""
    useful = []
    for setting, value, price in candidates:
        try:
            other = estimate(_changed(config, setting, value))
        except ConfigError:  # for instance a micro-batch size that divides nothing
            continue
        if now.high is not None and other.high is not None and other.high < now.high:
            useful.append(MemorySaving(setting, str(value).lower(), now.high - other.high, bool(other.fits), price))
    return useful


def cheapest(config: RunConfig, now: MemoryEstimate, estimate: Estimate[RunConfig]) -> MemorySaving | None:
    """The first change that makes the run fit; None when none does alone, or when it fits already."""
    return first_that_fits(now, lambda: changes(config, now, estimate))


def first_that_fits(now: MemoryEstimate, find_changes: Callable[[], list[MemorySaving]]) -> MemorySaving | None:
    """The first change after which the run fits. ``find_changes`` is not called where the run fits already."""
    return next((change for change in find_changes() if change.fits), None) if now.fits is False else None


def _candidates(config: RunConfig, device: Device) -> Iterator[tuple[str, Any, str]]:
    """(setting, value, price), from what costs nothing but time to what changes the run."""
    micro = config.ppo.micro_batch
    sizes = [size for size in range(micro - 1, 0, -1) if config.ppo.mini_batch_size % size == 0]
    yield from (("ppo.micro_batch_size", size, N_("a little slower, same result")) for size in sizes)
    together = rows_together(config)
    halves = [together >> times for times in range(1, together.bit_length())]
    yield from (("generation.batch_size", rows, N_("slower sampling, same result")) for rows in halves)
    if not config.model.gradient_checkpointing:
        yield "model.gradient_checkpointing", True, N_("slower updates, same result")
    if device.kind == "cuda" and device.bfloat16 and config.model.dtype == "float32":
        yield "model.dtype", "bfloat16", N_("rounds more")
    if not config.lora.enabled:
        yield "lora.enabled", True, N_("trains adapters instead of all weights")
    elif device.kind == "cuda" and config.model.quantization == "none" and config.lora.off_is_start:
        yield "model.quantization", "4bit", N_("rounds the frozen base; needs bitsandbytes")
    response = config.generation.response_length
    yield from (("generation.response_length", response // part, N_("shorter responses")) for part in (2, 4) if response >= 2 * part)


def _changed(config: _Config, setting: str, value: Any) -> _Config:
    values = {setting: value}
    generation = getattr(config, "generation", None)
    if setting == "generation.response_length" and isinstance(generation, GenerationConfig):
        values["generation.response_length_min"] = min(generation.response_length_min, value)
    return with_values(config, values)
