"""The contestant TRL 0.11.0, the last release with the classic PPOTrainer (generate, then step); imports nothing of ours.

    python -m benchmarks.speed.trl_011 JOB.json RESULT.json      (started by benchmarks.speed)

It has a value head on the policy, and leaves scoring to the caller: the reward model reads prompts and responses in one batch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.speed import contestant
from benchmarks.speed.job import Job
from benchmarks.speed.meter import Laps, wait_for_device
from benchmarks.speed.trl_common import adapters, load, tokenizer


def build(job: Job) -> tuple[Any, Any]:
    """The trainer and the reward model."""
    import torch
    from trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer

    workload, settings = job.workload, job.settings
    half, lora = workload.half, bool(workload.lora)
    base = load(job.inputs.policy, labels=False, half=half and lora)
    reference = None
    if lora:
        from peft import get_peft_model

        base = get_peft_model(base, adapters(workload))
    else:
        reference = AutoModelForCausalLMWithValueHead.from_pretrained(load(job.inputs.policy, labels=False, half=half))
    policy = AutoModelForCausalLMWithValueHead.from_pretrained(base)
    policy.is_peft_model = lora
    mini = workload.mini or workload.batch
    config = PPOConfig(
        **{"batch_size": workload.batch, "mini_batch_size": workload.micro, "gradient_accumulation_steps": mini // workload.micro},
        **{"ppo_epochs": workload.epochs, "learning_rate": settings["learning_rate"], "init_kl_coef": settings["kl_coef"]},
        **{"adap_kl_ctrl": False, "log_with": None, "seed": settings["seed"]},
        **{name: settings[name] for name in ("gamma", "lam", "cliprange", "cliprange_value", "vf_coef")},
        **({"accelerator_kwargs": {"mixed_precision": "bf16"}} if half else {}),
    )
    trainer = PPOTrainer(config=config, model=policy, ref_model=reference, tokenizer=tokenizer(job))
    reward = load(job.inputs.reward, labels=True, half=half).eval()
    return trainer, reward.to(torch.device(job.device))


def measure(job: Job) -> tuple[Laps, list[float]]:
    """Train; seconds of every update, and tokens sampled in each."""
    import torch

    trainer, reward = build(job)
    workload, laps, tokens = job.workload, Laps(), []
    rows = json.loads(Path(job.inputs.ids).read_text(encoding="utf-8"))
    prompts = [torch.tensor(row, device=job.device) for row in rows]
    # Without a stop, a sampled end token is a token like any other: TRL must not cut there either.
    fixed = {} if workload.stops else {"min_new_tokens": workload.response, "eos_token_id": None, "remove_padding": False}
    sampling = {"max_new_tokens": workload.response, "do_sample": True, "top_k": 0, "top_p": 1.0, **fixed}
    sampling |= {"temperature": job.settings["temperature"], "pad_token_id": trainer.tokenizer.pad_token_id}
    for number in range(workload.all_updates):
        start = number * workload.batch
        queries = [prompts[(start + number_in_batch) % len(prompts)] for number_in_batch in range(workload.batch)]
        laps.start()
        began = time.perf_counter()
        responses = trainer.generate(queries, batch_size=workload.batch, return_prompt=False, **sampling)
        laps.add("rollout", _since(began))
        began = time.perf_counter()
        scores = _score(trainer.tokenizer, reward, queries, responses)
        laps.add("scoring", _since(began))
        stats = trainer.step(queries, responses, scores)
        laps.add("scoring", stats["time/ppo/forward_pass"])
        laps.add("optimisation", stats["time/ppo/optimize_step"])
        laps.stop()
        tokens.append(float(sum(len(response) for response in responses)))
    return laps, tokens


def _score(tokenizer: Any, reward: Any, queries: list[Any], responses: list[Any]) -> list[Any]:
    import torch

    sequences = [torch.cat([query, response]).tolist() for query, response in zip(queries, responses, strict=True)]
    batch = tokenizer.pad({"input_ids": sequences}, return_tensors="pt").to(reward.device)
    with torch.no_grad():
        return list(reward(**{name: batch[name] for name in ("input_ids", "attention_mask")}).logits[:, 0].float())


def _since(began: float) -> float:
    wait_for_device()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(contestant.run(sys.argv[1:], measure, ("trl", "peft", "accelerate")))
