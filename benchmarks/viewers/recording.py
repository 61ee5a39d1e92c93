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


def measure_recording(name: str, config: Any, pairs: int) -> dict[str, Any]:
    """Seconds of the steps with and without recording, and what the recorded ones spent on it openly.

    ``config`` is that of a :func:`workload_config` or :func:`recipe_config`, with steps enough.
    """
    seconds: dict[bool, list[float]] = {True: [], False: []}
    parts = Parts()
    with running(config) as (trainer, writer):
        writer.commit_step(trainer.step())
        trainer.watched = parts.timed("watch", trainer.watched)
        trainer.probes.scores = parts.timed("probes", trainer.probes.scores)
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
    return {"workload": name, "threads": config.engine.threads, **shares(seconds[True], seconds[False], parts.seconds)}


def workload_config(job: Job, pairs: int) -> Any:
    """One of the workloads of benchmarks.speed."""
    return run_config(replace(job, workload=replace(job.workload, updates=steps_for(pairs), warm_up=0)))


def recipe_config(name: str, threads: int, pairs: int) -> Any:
    """A recipe as it is, all recording on, for so many steps."""
    from rlhf_studio.recipes import load_recipe

    config = load_recipe(name).config
    ppo = config.ppo.model_copy(update={"steps": steps_for(pairs) + 1})
    return config.model_copy(update={"ppo": ppo, "engine": config.engine.model_copy(update={"threads": threads, "device": "cpu"})})


def steps_for(pairs: int) -> int:
    """One to warm up, then both kinds. A run is longer by one: at its end the watched prompts would be due again."""
    return 2 * pairs + 1


def shares(on: list[float], off: list[float], parts: dict[str, float]) -> dict[str, Any]:
    """Recording as a share of a step: what was spent on it openly, and pair by pair the difference between the two kinds of step.

    ``parts`` are the seconds of all recorded steps: ``record`` with ``watch`` and ``probes`` in it, and ``commit``.
    """
    differences = [(one - other) / other for one, other in zip(on, off, strict=True)]
    watch, probes = parts.get("watch", 0.0), parts.get("probes", 0.0)
    apart = {"watch": watch, "probes": probes, "texts": parts["record"] - watch - probes, "commit": parts["commit"]}
    return {
        "on": statistics.median(on),
        "off": statistics.median(off),
        "openly": sum(apart.values()) / sum(on),
        "parts": {name: seconds / sum(on) for name, seconds in apart.items()},
        "difference": {"median": statistics.median(differences), "min": min(differences), "max": max(differences)},
        "pairs": len(on),
    }
