"""Our contestant: the engine as a run uses it, recording included.

python -m benchmarks.speed.ours JOB.json RESULT.json      (started by benchmarks.speed)
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed import contestant
from benchmarks.speed.job import Job
from benchmarks.speed.meter import Laps
from benchmarks.speed.workloads import LORA_ALPHA, LORA_RANK
from rlhf_studio.cli.engine import before_torch

PHASE_OF = {"time/rollout": "rollout", "time/score": "scoring", "time/reference": "scoring", "time/update": "optimisation"}
NOT_PPO = ("temperature", "seed")


def run_config(job: Job) -> Any:
    """The :class:`RunConfig` of a job."""
    from rlhf_studio.config import RunConfig

    workload, inputs = job.workload, job.inputs
    engine: dict[str, Any] = {"device": job.device, "threads": job.threads, "seed": job.settings["seed"]}
    if not job.recording:
        engine |= {"record_samples": 1, "watch_prompts": 0}
    values = {
        "model": {"policy": inputs.policy, "dtype": "bfloat16" if workload.half else "float32"},
        "data": {"prompts": inputs.texts, "shuffle": False, "max_prompt_tokens": workload.prompt[1]},
        "reward": {"components": [{"kind": "reward_model", "model": inputs.reward, "batch_size": workload.batch}]},
        "ppo": {
            **{name: value for name, value in job.settings.items() if name not in NOT_PPO},
            **{"steps": workload.all_updates + 1, "batch_size": workload.batch, "mini_batch_size": workload.mini or workload.batch},
            **{"micro_batch_size": workload.micro, "ppo_epochs": workload.epochs, "max_grad_norm": 0.0},
        },
        "generation": {
            **{"response_length": workload.response, "stop_token": "eos" if workload.stops else "none"},
            **{"temperature": job.settings["temperature"]},
        },
        "engine": engine,
    }
    if workload.lora:
        values["lora"] = {"enabled": True, "r": LORA_RANK, "alpha": float(LORA_ALPHA), "target_modules": ",".join(workload.lora)}
    return RunConfig.model_validate(values)


@contextlib.contextmanager
def running(config: Any) -> Iterator[tuple[Any, Any]]:
    """A trainer and the writer of its run folder, put together as the worker does it: lock, store and heartbeat."""
    import transformers

    from rlhf_studio.engine.compute.device import choose_compute
    from rlhf_studio.engine.loop.build import build_trainer
    from rlhf_studio.runs.create import create_run
    from rlhf_studio.runs.liveness import EngineLock
    from rlhf_studio.runs.writer import Heartbeat, RunWriter

    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        create_run(folder, config, name="speed", state="loading")
        with EngineLock(folder), RunWriter(folder) as writer, Heartbeat(folder):
            trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
            watched, _ = trainer.first_answers()
            writer.watched(0, watched)
            if trainer.probes:
                writer.probes(trainer.probes.texts(), trainer.probes.of_start())
            writer.set_state("running")
            yield trainer, writer


def measure(job: Job) -> tuple[Laps, list[float]]:
    """Run the job; seconds of every update, and tokens sampled in each."""
    laps, tokens, workload = Laps(), [], job.workload
    with running(run_config(job)) as (trainer, writer):
        for _ in range(workload.all_updates):  # the run is a step longer: its end, with the watched prompts, is no part of an update
            laps.start()
            record = trainer.step()
            if job.recording:
                writer.commit_step(record)
            for name, phase in PHASE_OF.items():
                laps.add(phase, record.metrics.get(name, 0.0))
            laps.stop()
            tokens.append(record.metrics["tokens/response_length"] * workload.batch)
    return laps, tokens


if __name__ == "__main__":
    before_torch()
    sys.exit(contestant.run(sys.argv[1:], measure, ("peft",)))
