"""Seconds per step, and how much of the device's own rate that is."""

from __future__ import annotations

from statistics import mean

from rlhf_studio.engine.check.checks import Numbers, Task
from rlhf_studio.engine.check.memory import expected_peak
from rlhf_studio.engine.check.rollouts import sizes
from rlhf_studio.engine.check.runs import metric, settings, train
from rlhf_studio.engine.check.workloads import W3, W4, operations, room_for, workload_settings
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.compute.measure import multiply_rate
from rlhf_studio.language import S_
from rlhf_studio.units import format_bytes, percent

STEPS = 4  # the first of which is not counted: kernels are chosen and memory is taken


def check_speed(task: Task) -> tuple[str, Numbers]:
    """The bundled world; on a CUDA GPU also random models of two real shapes, where there is room for them."""
    reader = train(task, "speed-world", settings(task, "world", sizes(task) if task.quick else {}, {"ppo": {"steps": STEPS}}))
    seconds = mean(metric(reader, "time/total")[1:])
    numbers: Numbers = {"world, seconds": seconds}
    sentences = [S_(f"world {seconds:.2g} s a step")]
    for workload in () if task.quick else (W3, W4):
        if missing := room_for(task, workload):
            sentences.append(S_(f"not tried: {missing}"))
            continue
        config = workload_settings(task, workload, STEPS)
        low, high = expected_peak(task, config)
        rate = multiply_rate(choose_compute(config).device)
        reader = train(task, f"speed-{workload.name}", config, memory=(low, high))
        seconds, peak = mean(metric(reader, "time/total")[1:]), metric(reader, "memory/peak")[-1]
        share = operations(workload) / rate / seconds
        name = workload.name
        numbers |= {f"{name}, seconds": seconds, f"{name}, share of the rate": share, f"{name}, operations": operations(workload)}
        numbers |= {f"{name}, peak": peak, f"{name}, estimate, least": low, f"{name}, estimate, most": high}
        sentences.append(S_(f"{name} ({workload.title}) {seconds:.3g} s, {percent(share)} of the device's rate, peak {format_bytes(peak)}"))
    return "; ".join(sentences), numbers
