"""What recording costs a step: the same trainer, with and without it in turn.

Recording is the likeliest tokens of the recorded episodes, their log-probabilities after the update, the texts of their tokens, the
answers to the watched prompts, and the commit to the run's database.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.speed.job import Job
from benchmarks.speed.ours import run_config, running


@contextlib.contextmanager
def unrecorded(trainer: Any) -> Iterator[None]:
    """Inside, a step keeps nothing: one episode's likeliest tokens are noted, since there must be one, and dropped."""
    player, record = trainer.player, trainer._record
    engine = player.config.engine.model_copy(update={"record_samples": 1})
    trainer.player = replace(player, config=player.config.model_copy(update={"engine": engine}))
    trainer._record = lambda rollout, kl_coef: ([], [], [])
    try:
        yield
    finally:
        trainer.player, trainer._record = player, record


def recorded_turn(number: int) -> bool:
    """On, off, off, on: neither kind always comes first."""
    return number % 4 in (0, 3)


def measure_recording(job: Job, pairs: int) -> dict[str, Any]:
    """Seconds of the steps with and without recording, and what the recorded ones spent on it openly."""
    workload = replace(job.workload, updates=2 * pairs, warm_up=1)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    openly: list[float] = []
    with running(run_config(replace(job, workload=workload))) as (trainer, writer):
        writer.commit_step(trainer.step())
        for number in range(2 * pairs):
            recorded = recorded_turn(number)
            began = time.perf_counter()
            with contextlib.nullcontext() if recorded else unrecorded(trainer):
                record = trainer.step()
            committing = time.perf_counter()
            if recorded:
                writer.commit_step(record)
                openly.append(record.metrics["time/record"] + time.perf_counter() - committing)
            seconds[recorded].append(time.perf_counter() - began)
    return shares(seconds[True], seconds[False], openly)


def shares(on: list[float], off: list[float], openly: list[float]) -> dict[str, Any]:
    """Recording as a share of a step: what was spent on it openly, and pair by pair the difference between the two kinds of step."""
    differences = [(one - other) / other for one, other in zip(on, off, strict=True)]
    return {
        "on": statistics.median(on),
        "off": statistics.median(off),
        "openly": sum(openly) / sum(on),
        "difference": {"median": statistics.median(differences), "min": min(differences), "max": max(differences)},
        "pairs": len(on),
    }
