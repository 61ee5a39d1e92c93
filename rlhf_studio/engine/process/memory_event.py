"""What the first step needed, beside what was estimated before the start."""

from __future__ import annotations

from rlhf_studio.runs.records import EventRecord


def memory_event(estimated: tuple[int, int] | None, peak: float) -> EventRecord:
    """The event that follows the first step, whose memory/peak is ``peak`` bytes.

    ``estimated``: the least and the most bytes that were said when the run was prepared. Nothing is worked out anew: that would read
    the models' files and thousands of prompts again, and ask the hub, while every other process waits.
    """
    text, data = f"After the first step the most memory held was {_size(peak)}", {"peak": peak}
    if estimated is None:
        return EventRecord("info", "memory", f"{text}; nothing was estimated before the start.", data)
    low, high = estimated
    return EventRecord("info", "memory", f"{text}; the estimate was {_size(low)} to {_size(high)}.", {**data, "low": low, "high": high})


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, 1e6) / 1e6:.0f} MB"
