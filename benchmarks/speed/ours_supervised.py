"""Our contestant in the stages but PPO: the engine's trainer, one optimizer step after the other.

python -m benchmarks.speed.ours_supervised JOB.json RESULT.json      (started by benchmarks.speed)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.speed import contestant
from benchmarks.speed.job import Job
from benchmarks.speed.meter import Laps
from benchmarks.speed.trl_common import adapters, load
from rlhf_studio.cli.engine import before_torch


def trainer_of(job: Job) -> Any:
    """A trainer for the workload's only epoch."""
    from rlhf_studio.config import RewardTrainingConfig, SFTConfig
    from rlhf_studio.engine.compute.fused import fuse_activations
    from rlhf_studio.engine.stages.reward_model.training import BradleyTerryObjective
    from rlhf_studio.engine.stages.sft import LanguageModelObjective
    from rlhf_studio.engine.stages.supervised.trainer import SupervisedTrainer
    from rlhf_studio.engine.stages.supervised.training_loop import compute_of
    from rlhf_studio.inputs.examples.encoded import IGNORED, EncodedExample, EncodedPair

    workload, sft = job.workload, job.workload.stage == "sft"
    model = load(job.inputs.policy if sft else job.inputs.reward, labels=not sft).to(job.device)
    fuse_activations(model)
    if workload.lora:
        from peft import get_peft_model

        model = get_peft_model(model, adapters(workload))
    rows = [[tuple(part) for part in row] for row in json.loads(Path(job.inputs.ids).read_text(encoding="utf-8"))]
    settings = {"batch_size": workload.batch, "micro_batch_size": workload.micro, "learning_rate": job.settings["learning_rate"]}
    if sft:
        items: list[Any] = [EncodedExample(prompt + done, (IGNORED,) * len(prompt) + done) for prompt, done in rows]
        return SupervisedTrainer(model, items, LanguageModelObjective(), SFTConfig(**settings), compute_of(model), job.settings["seed"])
    items = [EncodedPair(*row) for row in rows]
    objective = BradleyTerryObjective(pad_id=1)
    return SupervisedTrainer(model, items, objective, RewardTrainingConfig(**settings), compute_of(model), job.settings["seed"])


def measure(job: Job) -> tuple[Laps, list[float]]:
    """Train; seconds of every optimizer step, and tokens read in each."""
    laps, tokens, trainer = Laps(), [], trainer_of(job)
    for _ in range(job.workload.all_updates):
        laps.start()
        tokens.append(float(trainer.step().tokens))
        laps.stop()
    for update in laps.updates:
        update["optimisation"], update["rest"] = update["rest"], 0.0
    return laps, tokens


if __name__ == "__main__":
    before_torch()
    sys.exit(contestant.run(sys.argv[1:], measure, ("peft",)))
