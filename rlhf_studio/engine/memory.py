"""What the first step needed, beside what was estimated before the start."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.config import RunConfig
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.runs.records import EventRecord


def memory_event(config: RunConfig, run_dir: Path, peak: float) -> EventRecord:
    """The event that follows the first step; ``peak`` is its memory/peak in bytes."""
    try:
        plan = inspect_run(config, run_dir).plan
    except (OSError, ValueError):  # files that were there a moment ago; the run itself has what it needs
        plan = None
    expected = plan.measured_range() if plan else None
    text, data = f"After the first step the most memory held was {_size(peak)}", {"peak": peak}
    if expected is None:
        return EventRecord("info", "memory", f"{text}; the models' files did not allow an estimate.", data)
    low, high = expected
    return EventRecord("info", "memory", f"{text}; the estimate was {_size(low)} to {_size(high)}.", {**data, "low": low, "high": high})


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, 1e6) / 1e6:.0f} MB"
