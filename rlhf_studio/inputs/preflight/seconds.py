"""The time of a step, from what the check before a start knows and a device's rate."""

from __future__ import annotations

from collections.abc import Callable

from rlhf_studio.config import RunConfig
from rlhf_studio.inputs.estimate.speed import seconds_per_step
from rlhf_studio.inputs.preflight.report import Preflight


def seconds_by_rate(config: RunConfig, report: Preflight, rate_of: Callable[[str], float | None]) -> tuple[float, float] | None:
    """Seconds per step, at least and at most; None where nobody can tell.

    ``rate_of``: operations per second of a kind of device (``cpu``); it is asked only where the rest is known.
    """
    memory = report.memory_estimate
    if memory is None or report.models is None or (rate := rate_of(memory.device.kind)) is None:
        return None
    prompt = report.prompt_tokens.usual if report.prompt_tokens else config.data.max_prompt_tokens
    return seconds_per_step(config, report.models, prompt, memory.device.kind, rate)
