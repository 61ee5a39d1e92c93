"""The planner's estimate of memory against the measured peak."""

from __future__ import annotations

from rlhf_studio.config import StageConfig
from rlhf_studio.engine.check.checks import CheckFailed, Numbers, Task
from rlhf_studio.engine.check.rollouts import sizes
from rlhf_studio.engine.check.runs import metric, settings, train
from rlhf_studio.engine.check.workloads import W3, room_for, workload_settings
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.language import S_
from rlhf_studio.units import format_byte_range, format_bytes

MARGIN = 1.25
"""The peak may lie outside of the estimate's two ends by this factor."""


def check_memory(task: Task) -> tuple[str, Numbers]:
    """One step: on a GPU of the shape of GPT-2, where there is room for it; else of the bundled world."""
    config = settings(task, "world", sizes(task), {"ppo": {"steps": 1}})
    if task.kind == "cuda" and not task.quick and not room_for(task, W3):
        config = workload_settings(task, W3, steps=1)
    assert config.planned_steps == 1
    low, high = expected_peak(task, config)
    peak = metric(train(task, "memory", config, memory=(low, high)), "memory/peak")[0]
    return judged(low, high, peak)


def judged(low: float, high: float, peak: float) -> tuple[str, Numbers]:
    """Compare the peak with the two ends of the estimate, in bytes. Raises :class:`CheckFailed`."""
    numbers: Numbers = {"estimate, least": low, "estimate, most": high, "peak": peak, "margin": MARGIN}
    text = S_(f"peak {format_bytes(peak)}, estimated {format_byte_range(low, high)}")
    if not low / MARGIN <= peak <= high * MARGIN:
        raise CheckFailed(f"{text}; {S_(f'it may lie outside by a factor of {MARGIN:g}')}", numbers)
    return text, numbers


def expected_peak(task: Task, config: StageConfig) -> tuple[int, int]:
    """The planner's two ends, in bytes. Raises :class:`CheckFailed` where it refuses the settings or cannot tell."""
    preflight = inspect_run(config, task.folder)
    if preflight.problems:
        raise CheckFailed(S_(f"the check before a start refuses the settings: {preflight.problems[0]}"))
    if preflight.expected_peak is None:
        raise CheckFailed(S_("the planner gives no estimate"))
    return preflight.expected_peak
