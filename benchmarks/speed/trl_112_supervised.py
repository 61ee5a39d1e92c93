"""The contestant TRL 1.12.0 in the stages but PPO: its SFTTrainer and RewardTrainer, in its own environment; imports nothing of ours.

    python -m benchmarks.speed.trl_112_supervised JOB.json RESULT.json      (started by benchmarks.speed)

It gets token ids, so that it does not tokenise. A micro-batch is padded to its longest text. Logits only where they count
(``chunked_nll``) are its default. Gradient checkpointing, which it would switch on, is off. A step is all from one step's end to the next.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.speed import contestant
from benchmarks.speed.job import Job
from benchmarks.speed.meter import Laps, wait_for_device
from benchmarks.speed.trl_common import adapters, load, tokenizer

IGNORED = -100


def arguments_for(job: Job, output: str) -> dict[str, Any]:
    """What SFTConfig and RewardConfig have in common."""
    workload = job.workload
    micro = workload.peer_micro or workload.batch
    return {
        **{"per_device_train_batch_size": micro, "gradient_accumulation_steps": workload.batch // micro},
        **{"learning_rate": job.settings["learning_rate"], "seed": job.settings["seed"], "num_train_epochs": 1, "max_length": None},
        **{"save_strategy": "no", "logging_steps": 1, "report_to": "none", "disable_tqdm": True, "gradient_checkpointing": False},
        **{"bf16": workload.half, "fp16": False, "use_cpu": not workload.gpu, "output_dir": output},
    }


def trainer_of(job: Job, output: str, callback: Any) -> Any:
    """TRL's trainer for the workload's only epoch."""
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer, SFTConfig, SFTTrainer

    sft = job.workload.stage == "sft"
    rows = json.loads(Path(job.inputs.ids).read_text(encoding="utf-8"))
    model = load(job.inputs.policy if sft else job.inputs.reward, labels=not sft)
    more = {
        "processing_class": tokenizer(job),
        "callbacks": [callback],
        "peft_config": adapters(job.workload) if job.workload.lora else None,
    }
    if sft:
        columns = {
            "input_ids": [prompt + done for prompt, done in rows],
            "labels": [[IGNORED] * len(prompt) + done for prompt, done in rows],
        }
        return SFTTrainer(model, SFTConfig(**arguments_for(job, output)), train_dataset=Dataset.from_dict(columns), **more)
    columns = {"chosen_ids": [prompt + chosen for prompt, chosen, _ in rows], "rejected_ids": [prompt + other for prompt, _, other in rows]}
    return RewardTrainer(model, RewardConfig(**arguments_for(job, output)), train_dataset=Dataset.from_dict(columns), **more)


def measure(job: Job) -> tuple[Laps, list[float]]:
    """Train; seconds of every optimizer step, and tokens read in each."""
    from transformers import TrainerCallback

    laps, tokens = Laps(), []

    class Clock(TrainerCallback):
        """A step ends where the next one begins."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            laps.start()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            wait_for_device()
            laps.start()

    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(io.StringIO()):
        trainer = trainer_of(job, output, Clock())
        collate = trainer.data_collator

        def counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
            batch = collate(rows)
            tokens.append(float(batch["attention_mask"].sum()))
            return batch

        trainer.data_collator = counted
        trainer.train()
    for update in laps.updates:
        update["optimisation"], update["rest"] = update["rest"], 0.0
    parts = len(tokens) // len(laps.updates)  # micro-batches of a step
    return laps, [sum(tokens[first : first + parts]) for first in range(0, len(tokens), parts)]


if __name__ == "__main__":
    sys.exit(contestant.run(sys.argv[1:], measure, ("trl", "peft", "accelerate")))
