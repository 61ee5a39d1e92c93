"""The contestant TRL 1.12.0, the last release with a PPOTrainer, in its own environment; imports nothing of ours.

    python -m benchmarks.speed.trl_112 JOB.json RESULT.json      (started by benchmarks.speed)

TRL's own recipe: a value model that starts as the reward model, all in float32 on a CPU. On a GPU bfloat16 by autocast, with
frozen models in bfloat16. Its parts are timed by wrapping its functions; the update is what they leave.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.speed import contestant
from benchmarks.speed.job import Job
from benchmarks.speed.meter import Laps
from benchmarks.speed.trl_common import adapters, load, tokenizer


def arguments_for(job: Job, output: str) -> dict[str, Any]:
    """PPOConfig's options: the workload, and our settings, which have the same names."""
    workload = job.workload
    mini = workload.mini or workload.batch
    parts = workload.batch // workload.micro if workload.micro < mini else 1  # more than one means one optimizer step per epoch
    return {
        **job.settings,
        **{"per_device_train_batch_size": workload.batch // parts, "gradient_accumulation_steps": parts},
        **{"num_mini_batches": workload.batch // mini, "num_ppo_epochs": workload.epochs},
        **{"local_rollout_forward_batch_size": workload.batch, "response_length": workload.response},
        **{"total_episodes": workload.batch * workload.all_updates, "stop_token": "eos" if workload.stops else None},
        **{"num_sample_generations": 0, "save_strategy": "no", "logging_steps": 1, "report_to": "none", "disable_tqdm": True},
        **{"gradient_checkpointing": False, "bf16": workload.half, "fp16": False, "use_cpu": not workload.gpu, "output_dir": output},
    }


def measure(job: Job) -> tuple[Laps, list[float]]:
    """Train and save the policy; seconds of every update, and tokens sampled in each."""
    from datasets import Dataset
    from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

    laps, half, lora = Laps(), job.workload.half, bool(job.workload.lora)
    tokens: list[float] = []
    ppo_trainer.batch_generation = _counting(laps.timed("rollout", ppo_trainer.batch_generation, opens=True), tokens, job)
    ppo_trainer.get_reward = laps.timed("scoring", ppo_trainer.get_reward)
    ppo_trainer.forward = _only_without_gradients(laps, ppo_trainer.forward)
    with tempfile.TemporaryDirectory() as output, contextlib.redirect_stdout(io.StringIO()):
        trainer = PPOTrainer(
            args=PPOConfig(**arguments_for(job, output)),
            processing_class=tokenizer(job),
            model=load(job.inputs.policy, labels=False, half=half and lora),
            ref_model=None if lora else load(job.inputs.policy, labels=False, half=half),
            reward_model=load(job.inputs.reward, labels=True, half=half),
            value_model=load(job.inputs.reward, labels=True),
            train_dataset=Dataset.from_dict({"input_ids": json.loads(Path(job.inputs.ids).read_text(encoding="utf-8"))}),
            peft_config=adapters(job.workload) if lora else None,
        )
        trainer.train()
        laps.stop()
        if job.workload.stops:  # a whole run, which ends with a policy on disk
            trainer.policy_model.save_pretrained(Path(output) / "policy")
    for update in laps.updates:  # TRL's loop has no function of its own for the update: it is all that remains
        update["optimisation"], update["rest"] = update["rest"], 0.0
    return laps, tokens


def _counting(generate: Any, tokens: list[float], job: Job) -> Any:
    """``generate`` that also notes how many tokens it sampled: all of them, or those before the padding."""

    def wrapped(model: Any, queries: Any, size: int, pad: int, *more: Any) -> Any:
        sequences, logits = generate(model, queries, size, pad, *more)
        responses = sequences[:, queries.shape[1] :]
        tokens.append(float((responses != pad).sum() if job.workload.stops else responses.numel()))
        return sequences, logits

    return wrapped


def _only_without_gradients(laps: Laps, forward: Any) -> Any:
    """The reference's pass counts as scoring; the same function is called with gradients in the update."""
    import torch

    counted = laps.timed("scoring", forward)
    return lambda *given, **named: (forward if torch.is_grad_enabled() else counted)(*given, **named)


if __name__ == "__main__":
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    sys.exit(contestant.run(sys.argv[1:], measure, ("trl", "peft", "accelerate")))
