"""The frame of a contestant's process: read the job, use the given threads, measure the matrix rate around the work, write the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.speed.job import Job
from benchmarks.speed.meter import Laps, matrix_rate, peak_allocated, peak_resident, write_result


def run(arguments: list[str], measure: Callable[[Job], tuple[Laps, list[float]]], packages: tuple[str, ...]) -> int:
    """``measure`` does the job; it returns its laps and the tokens sampled in each update."""
    import torch

    job, target = Job.read(Path(arguments[0])), Path(arguments[1])
    torch.set_num_threads(job.threads)
    before = [matrix_rate(job.device)] if job.probe else []
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    laps, tokens = measure(job)
    peaks = {"peak_resident": peak_resident(), "peak_gpu": peak_allocated()}
    after = [matrix_rate(job.device)] if job.probe else []
    write_result(target, laps, packages, tokens=tokens, matrix_rates=before + after, **peaks)
    return 0
