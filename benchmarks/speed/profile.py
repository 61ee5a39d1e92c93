"""Where an update's time goes: every operation of one update, by kind, on one thread.

One thread, because the profiler sees the operations of the thread that starts it, and because shares are those of several lanes that
each do the same. The seconds are longer than without the profiler; shares hardly change.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

from benchmarks.speed.job import Job
from benchmarks.speed.ours import PHASE_OF, run_config, running

_PER_ELEMENT = (
    "add|sub|mul|div|neg|exp|log|sigmoid|tanh|gelu|silu|pow|clamp|where|sum|mean|max|amax|min|cumsum|softmax|topk"  # and what starts so
)
KINDS = {
    "matrix products": r"aten::(mm|addmm|bmm|baddbmm|addbmm|linear|matmul)$",
    "attention": r"aten::_?scaled_dot_product",
    "norms": r"aten::(native_layer_norm|_?fused_rms_norm|rms_norm)",
    "optimizer": r"aten::_fused_adam",
    "copies and gathers": r"aten::(copy_|clone|cat|stack|index|index_select|gather|scatter|embedding|fill_|zero_|masked_)",
    "arithmetic per element": rf"aten::_?({_PER_ELEMENT})",
}
REST = "between operations"
"""Everything else: mostly Python, views and bookkeeping."""


def profile(job: Job) -> dict[str, Any]:
    """One update after the warm-up under torch's profiler."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    job = replace(job, threads=1)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if job.workload.gpu else [])]
    with running(run_config(job)) as (trainer, writer):
        for _ in range(job.workload.warm_up):
            writer.commit_step(trainer.step())
        with torch_profile(activities=kinds) as measured:
            began = time.perf_counter()
            record = trainer.step()
            writer.commit_step(record)
            wall = time.perf_counter() - began
    events = measured.key_averages()
    own = "self_device_time_total" if job.workload.gpu else "self_cpu_time_total"
    times = [(event.key, getattr(event, own) / 1e6, event.count) for event in events if getattr(event, own) > 0]
    return result(times, record.metrics, wall, torch.__version__)


def result(times: list[tuple[str, float, int]], metrics: dict[str, float], wall: float, version: str) -> dict[str, Any]:
    """Seconds by phase, kind and operation; ``times`` are names, own seconds and calls."""
    phases = {name.removeprefix("time/"): metrics[name] for name in (*PHASE_OF, "time/record") if name in metrics}
    kinds = dict.fromkeys([*KINDS, REST], 0.0)
    for name, seconds, _ in times:
        kinds[kind_of(name)] += seconds
    top = sorted(times, key=lambda row: -row[1])[:25]
    return {"seconds": wall, "phases": phases, "kinds": kinds, "operations": top, "torch": version}


def kind_of(operation: str) -> str:
    """The first of :data:`KINDS` that matches."""
    return next((kind for kind, pattern in KINDS.items() if re.match(pattern, operation)), REST)


def lines(profiled: dict[str, Any]) -> list[str]:
    """For people: phases, kinds, and the operations that take most time of their own."""
    total = sum(profiled["kinds"].values()) or 1.0
    phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in profiled["phases"].items())
    kinds = [f"{100 * seconds / total:5.1f}%  {kind}" for kind, seconds in profiled["kinds"].items()]
    top = [f"{1e3 * own:9.1f} {100 * own / total:5.1f}% {calls:7d}  {name[:70]}" for name, own, calls in profiled["operations"]]
    head = f"one update on one thread under the profiler: {profiled['seconds']:.2f} s ({phases})"
    return [head, *kinds, f"{'own ms':>9} {'share':>6} {'calls':>7}  operation", *top]
