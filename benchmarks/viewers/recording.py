"""What recording costs a step: the same trainer, with and without it in turn.

Recording is the likeliest tokens of the recorded episodes, which are noted while the models are at work; then the answers to the watched
prompts (``watch``), the forward pass over the probes (``probes``), the arrays and the texts of tokens (``texts``), and the ``commit`` to
the run's database.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks.speed.job import Job
from benchmarks.speed.ours import run_config, running


@contextlib.contextmanager
def unrecorded(trainer: Any) -> Iterator[None]:
    """Inside, a step keeps nothing: one episode's likeliest tokens are noted, since there must be one, and dropped."""
    from rlhf_studio.engine.loop.trainer import Kept

    models, record = trainer.models, trainer.record
    engine = models.config.engine.model_copy(update={"record_samples": 1})
    trainer.models = replace(models, config=models.config.model_copy(update={"engine": engine}))
    trainer.record = lambda rollout, stats: Kept()
    try:
        yield
    finally:
        trainer.models, trainer.record = models, record


class Parts:
    """Seconds of the parts of recording that the trainer does in functions of their own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            result = function(*arguments, **named)
            self.add(name, time.perf_counter() - began)
            return result

        return wrapped


def recorded_turn(number: int) -> bool:
    """On, off, off, on: neither kind always comes first."""
    return number % 4 in (0, 3)


def measure_recording(job: Job, pairs: int) -> dict[str, Any]:
    """Seconds of the steps with and without recording, and what the recorded ones spent on it openly."""
    workload = replace(job.workload, updates=2 * pairs + 1, warm_up=1)  # one more: at the end the watched prompts would be due again
    seconds: dict[bool, list[float]] = {True: [], False: []}
    parts = Parts()
    with running(run_config(replace(job, workload=workload))) as (trainer, writer):
        writer.commit_step(trainer.step())
        trainer.watched = parts.timed("watch", trainer.watched)
        for number in range(2 * pairs):
            recorded = recorded_turn(number)
            began = time.perf_counter()
            with contextlib.nullcontext() if recorded else unrecorded(trainer):
                record = trainer.step()
            committing = time.perf_counter()
            if recorded:
                writer.commit_step(record)
                parts.add("commit", time.perf_counter() - committing)
                parts.add("record", record.metrics["time/record"])
            seconds[recorded].append(time.perf_counter() - began)
    return {"workload": workload.name, "threads": job.threads, **shares(seconds[True], seconds[False], parts.seconds)}


def shares(on: list[float], off: list[float], parts: dict[str, float]) -> dict[str, Any]:
    """Recording as a share of a step: what was spent on it openly, and pair by pair the difference between the two kinds of step.

    ``parts`` are the seconds of all recorded steps: ``record`` with ``watch`` in it, and ``commit``.
    """
    differences = [(one - other) / other for one, other in zip(on, off, strict=True)]
    watch = parts.get("watch", 0.0)
    apart = {"watch": watch, "texts": parts["record"] - watch, "commit": parts["commit"]}
    return {
        "on": statistics.median(on),
        "off": statistics.median(off),
        "openly": sum(apart.values()) / sum(on),
        "parts": {name: seconds / sum(on) for name, seconds in apart.items()},
        "difference": {"median": statistics.median(differences), "min": min(differences), "max": max(differences)},
        "pairs": len(on),
    }
