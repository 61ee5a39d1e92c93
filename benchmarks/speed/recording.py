"""What recording costs a step: the same trainer, with and without it in turn.

    python -m benchmarks.speed.recording --workload w1

The workload may be a recipe, too. The result goes to benchmarks/results/.

Recording is the likeliest tokens of the recorded episodes, which are noted while the models are at work; then the answers to the watched
prompts (``watch``), the forward pass over the probes (``probes``), the recorded episodes token by token (``tokens``), all
episodes (``episodes``), and the ``commit`` to the run's database.

Both clocks are read: the one on the wall, and the processor time of all threads of this process. Where other programs want the same
processors, the second says more: a thread that waits for its turn is not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.speed import machine
from benchmarks.speed.__main__ import RESULTS, workload_job
from benchmarks.speed.job import Job
from benchmarks.speed.ours import run_config, running
from benchmarks.speed.workloads import WORKLOADS

RECIPES = ("world", "world-lora")


@contextlib.contextmanager
def unrecorded(trainer: Any) -> Iterator[None]:
    """Inside, a step keeps nothing: one episode's likeliest tokens are noted, since there must be one, and dropped."""
    from rlhf_studio.engine.loop.trainer import StepDetails

    models, record = trainer.models, trainer.record
    engine = models.config.engine.model_copy(update={"record_samples": 1})
    trainer.models = replace(models, config=models.config.model_copy(update={"engine": engine}))
    trainer.record = lambda rollout, stats: StepDetails()
    try:
        yield
    finally:
        trainer.models, trainer.record = models, record


PARTS = ("watch", "probes", "tokens", "episodes", "commit")
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

Laps = dict[str, list[float]]
"""Seconds by what they were spent on, one number for each time."""


class Stopwatch:
    """Seconds on both clocks, by what they were spent on."""

    def __init__(self) -> None:
        self.laps: dict[str, Laps] = {clock: {} for clock in CLOCKS}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = {clock: read() for clock, read in CLOCKS.items()}
        yield
        for clock, read in CLOCKS.items():
            self.laps[clock].setdefault(name, []).append(read() - began[clock])

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            with self(name):
                return function(*arguments, **named)

        return wrapped


def recorded_turn(number: int) -> bool:
    """On, off, off, on: neither kind always comes first."""
    return number % 4 in (0, 3)


def measure_recording(name: str, config: Any, pairs: int) -> dict[str, Any]:
    """Seconds of the steps with and without recording, and what the recorded ones spent on it openly.

    ``config`` is that of a :func:`workload_config` or :func:`recipe_config`, with steps enough.
    """
    watch = Stopwatch()
    with running(config) as (trainer, writer):
        writer.commit_step(trainer.step())
        recorder = trainer._recorder
        trainer.watched = watch.timed("watch", trainer.watched)
        trainer.probes.scores = watch.timed("probes", trainer.probes.scores)
        recorder.rollouts = watch.timed("tokens", recorder.rollouts)
        recorder.episodes = watch.timed("episodes", recorder.episodes)
        for number in range(2 * pairs):
            if recorded_turn(number):
                with watch("on"):
                    record = trainer.step()
                    with watch("commit"):
                        writer.commit_step(record)
            else:
                with watch("off"), unrecorded(trainer):
                    trainer.step()
    cpu = shares(watch.laps["cpu"])
    used = {name: cpu[name] for name in ("on", "off", "openly", "parts")}
    return {"workload": name, "threads": config.engine.threads, **shares(watch.laps["wall"]), "cpu": used}


def workload_config(job: Job, pairs: int) -> Any:
    """One of the workloads of benchmarks.speed."""
    return run_config(replace(job, workload=replace(job.workload, updates=steps_for(pairs), warm_up=0)))


def recipe_config(name: str, threads: int, pairs: int) -> Any:
    """A recipe as it is, all recording on, for so many steps."""
    from rlhf_studio.config.recipes import load_recipe

    config = load_recipe(name).config
    ppo = config.ppo.model_copy(update={"steps": steps_for(pairs) + 1})
    return config.model_copy(update={"ppo": ppo, "engine": config.engine.model_copy(update={"threads": threads, "device": "cpu"})})


def steps_for(pairs: int) -> int:
    """One to warm up, then both kinds. A run is longer by one: at its end the watched prompts would be due again."""
    return 2 * pairs + 1


def shares(laps: Laps) -> dict[str, Any]:
    """Recording as a share of a step: what was spent on it openly, and pair by pair the difference between the two kinds of step.

    ``laps`` are the seconds of the steps ``on`` and ``off``, and of the parts of recording in those that are on. Each part counts with
    its median, as often as it was done: the answers to the watched prompts are not due in every step.
    """
    on, off = laps["on"], laps["off"]
    differences = [(with_recording - other) / other for with_recording, other in zip(on, off, strict=True)]
    step = statistics.median(on)
    spent = {name: laps.get(name, []) for name in PARTS}
    parts = {name: statistics.median(seconds) * len(seconds) / len(on) / step if seconds else 0.0 for name, seconds in spent.items()}
    return {
        "on": step,
        "off": statistics.median(off),
        "openly": sum(parts.values()),
        "parts": parts,
        "difference": {"median": statistics.median(differences), "min": min(differences), "max": max(differences)},
        "pairs": len(on),
    }


def recording_line(result: dict[str, Any]) -> str:
    """What was found, for people."""
    gap = result["difference"]
    apart = ", ".join(f"{name} {100 * share:.2f} %" for name, share in result["parts"].items())
    return (
        f"recording {result['workload']}: {result['on']:.3f} s a step with it, {result['off']:.3f} s without, {result['pairs']} pairs; "
        f"{100 * result['openly']:.2f} % of a step is spent on it openly ({apart}), "
        f"{100 * result['cpu']['openly']:.2f} % of its processor time; pair by pair {100 * gap['median']:.2f} % "
        f"({100 * gap['min']:.2f} to {100 * gap['max']:.2f} %)"
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    workloads = [*RECIPES, *(name for name, workload in WORKLOADS.items() if not workload.gpu)]
    parser.add_argument("--workload", default="w1", choices=workloads)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of steps divided by two")
    parser.add_argument("--threads", type=int, default=machine.threads_here(), help="CPU threads of the training")
    parser.add_argument("--json", type=Path, metavar="FOLDER", default=RESULTS, help="write the result here")
    options = parser.parse_args(arguments)
    pairs = 2 * options.rounds
    if options.workload in RECIPES:
        config = recipe_config(options.workload, options.threads, pairs)
    else:
        config = workload_config(workload_job(WORKLOADS[options.workload], options.threads), pairs)
    result = measure_recording(options.workload, config, pairs)
    print(recording_line(result), flush=True)
    command = f"python -m benchmarks.speed.recording --workload {options.workload} --rounds {options.rounds} --threads {options.threads}"
    about = {"command": command, "date": datetime.date.today().isoformat(), "machine": machine.describe()}
    options.json.mkdir(parents=True, exist_ok=True)
    path = options.json / f"recording-{options.workload}.json"
    path.write_text(json.dumps({**result, **about}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
