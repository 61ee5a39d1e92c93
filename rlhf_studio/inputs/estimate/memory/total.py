"""All parts of a run's memory together, and whether they fit into what is free on the device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rlhf_studio.config import RunConfig
from rlhf_studio.inputs.estimate.counts import RunModels, bytes_per_number
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.lasting import GPU_FRAMEWORK, lasting_parts, probe_parts, prompt_parts
from rlhf_studio.inputs.estimate.memory.parts import MemoryPart
from rlhf_studio.inputs.estimate.memory.phases import LEARNING_PARTS, SAMPLING_PARTS, sampling_and_learning_parts, scoring_parts
from rlhf_studio.inputs.prompts.lengths import PromptTokens
from rlhf_studio.language import S_


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory of one run on one device.

    Attributes:
        parts: in the order of the table on the Train page.
        unknown: one sentence why there is no total, or empty.
    """

    device: Device
    parts: list[MemoryPart]
    unknown: str = ""

    @property
    def low(self) -> int | None:
        """Least bytes at the peak: everything that lasts, and the largest of the phases."""
        if self.unknown:
            return None
        return sum(part.low or 0 for part in self.parts if part.lasting) + max(_phases(self.parts))

    @property
    def high(self) -> int | None:
        """Most bytes at the peak: everything together, since an allocator does not always give memory back between the phases."""
        return None if self.unknown else sum(part.high or 0 for part in self.parts)

    @property
    def fits(self) -> bool | None:
        """Whether even the high figure fits into what is free; None when one of them is unknown."""
        return None if self.high is None or self.device.free is None else self.high <= self.device.free

    @property
    def too_large(self) -> bool:
        """Whether even the low figure does not fit."""
        return self.low is not None and self.device.free is not None and self.low > self.device.free

    def measured_range(self) -> tuple[int, int] | None:
        """Bytes between which the metric memory/peak should lie. On a GPU it counts tensors only, not the framework."""
        if self.low is None or self.high is None:
            return None
        if self.device.kind == "cpu":
            return self.low, self.high
        return self.low - GPU_FRAMEWORK[0], self.high - GPU_FRAMEWORK[1]


def _phases(parts: Sequence[MemoryPart]) -> Iterable[int]:
    """Least bytes of each phase; the phases come one after the other."""
    sizes = {part.name: part.low or 0 for part in parts if not part.lasting}
    learning = sum(sizes.pop(name, 0) for name in LEARNING_PARTS)
    sampling = sum(sizes.pop(name, 0) for name in SAMPLING_PARTS)
    return [learning, sampling, *sizes.values()]


def estimate_memory(config: RunConfig, models: RunModels, device: Device, prompts: PromptTokens | None = None) -> MemoryEstimate:
    """The memory that a run needs. ``prompts``: their lengths; None takes ``data.max_prompt_tokens`` for every prompt.

    The low figure is for prompts of usual length, because nobody knows which prompts share a batch. The high one is for the longest prompt.
    """
    longest = config.data.max_prompt_tokens
    prompt = (min(prompts.usual, longest), min(prompts.longest[1], longest)) if prompts else (longest, longest)
    size = bytes_per_number(config, device)
    parts = [
        *lasting_parts(config, models, device, size),
        *prompt_parts(config, prompts, device),
        *probe_parts(config, models, device),
        *sampling_and_learning_parts(config, models, prompt, device, size),
        *scoring_parts(config, models, prompts, size),
    ]
    return estimate_of_parts(device, parts)


def estimate_of_parts(device: Device, parts: list[MemoryPart]) -> MemoryEstimate:
    """One estimate from all parts. It names the parts whose size is unknown."""
    missing = [part.name.lower() for part in parts if part.low is None]
    unknown = S_(f"unknown: the model's files do not tell the size of {', '.join(missing)}") if missing else ""
    return MemoryEstimate(device, parts, unknown)
