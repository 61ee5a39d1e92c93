"""What the first step needed, beside what was estimated before the start."""

from __future__ import annotations

from typing import Any

import psutil
import torch

from rlhf_studio.runs.records import EventRecord
from rlhf_studio.units import format_bytes


def weights_of(model: Any | None) -> int | None:
    """How many weights a model has, the frozen ones too. None without a model, and for quantized ones, of which several share a number."""
    if model is None:
        return None
    whole = all(weight.is_floating_point() for weight in model.parameters())
    return sum(weight.numel() for weight in model.parameters()) if whole else None


def memory_event(estimated: tuple[int, int] | None, peak: float, weights: int | None) -> EventRecord:
    """The event that follows the first step, whose memory/peak is ``peak`` bytes.

    ``estimated``: the least and the most bytes of the estimate that was made when the run was prepared. It is not made again here: that
    would read the models' files and thousands of prompts, and ask the hub, while every other process waits. ``weights``: of the model that
    learns, on record for who judges the settings later.
    """
    text = f"After the first step the most memory held was {format_bytes(peak)}"
    data = {"peak": peak, "limit": memory_limit(), "weights": weights}
    if estimated is None:
        return EventRecord("info", "memory", f"{text}; nothing was estimated before the start.", data)
    low, high = estimated
    text = f"{text}; the estimate was {format_bytes(low)} to {format_bytes(high)}."
    return EventRecord("info", "memory", text, {**data, "low": low, "high": high})


def memory_limit() -> float:
    """Bytes of memory that there are, of the kind that ``memory/peak`` counts: of this process's GPU, or without one of the machine."""
    if torch.cuda.is_initialized():
        return float(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    return float(psutil.virtual_memory().total)
