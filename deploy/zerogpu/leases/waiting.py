"""Why a run waits, in words, and the state that it waits in: ``stopped``, with a cause. Resume takes another lease."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from leases.lease import LONGEST, LeaseEnd, Pace
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, EventRecord
from rlhf_studio.runs.writer import RunWriter

RESUME = "Resume, on the Runs page, takes another lease, from the quota of whoever presses it."
PAUSED = f"The run was paused, and its lease of a GPU is over. {RESUME}"
TAKEN = f"The GPU was taken away in the middle of a lease. Steps since the last checkpoint are trained again. {RESUME}"


def why_no_lease(error: Exception) -> str:
    """Why a call of the decorated function failed. ``spaces`` raises Gradio's error, with a title that says what happened."""
    title, text = str(getattr(error, "title", "")), str(getattr(error, "message", error)).strip().rstrip(".")
    if "aborted" in text:
        return TAKEN
    if "quota" in title or "credits" in title:
        return f"Waits for GPU time: {text}. {RESUME}"
    if title == "ZeroGPU worker error":  # the text is the name of an exception's class
        return f"The process that had the GPU failed ({text}); engine.log may say more. {RESUME}"
    return f"Waits for a GPU: {text or type(error).__name__}. {RESUME}"


def why_not_again(end: LeaseEnd, seconds: int, pace: Pace) -> str:
    """Why no lease follows one of so many seconds with this end; empty when another lease follows."""
    if end.problem:
        return end.problem
    if end.paused:
        return PAUSED
    if end.over and not end.steps and seconds == LONGEST:
        return (
            f"No step fits into a lease: loading, a step and its checkpoint take {pace.one_step():.0f} seconds or more, and a lease has "
            f"{LONGEST}. Change the run's settings to a smaller batch or shorter responses, then resume it."
        )
    return ""


def set_aside(run_dir: Path, state: Literal["stopped", "failed"], cause: str, since: int) -> None:
    """Record that nothing works on the run now, unless it has ended in another way since its ``seq`` had this value. Raises StoreError."""
    with EngineLock(run_dir):
        now, seq = RunReader(run_dir).stored()
        if now in ENDED and seq != since:
            return
        with RunWriter(run_dir) as writer:
            writer.event(EventRecord("warning" if state == "stopped" else "error", "lease", cause))
            writer.set_state(state, cause=cause)
