"""What both versions of TRL are given: the same models, tokenizer and adapters. Runs in the peers' environments without ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.speed.job import Job
from benchmarks.speed.workloads import LORA_ALPHA, LORA_RANK, Workload


def load(folder: str, *, labels: bool, half: bool = False) -> Any:
    """A model of the job, in bfloat16 with ``half``; every weight must be there."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    kind = AutoModelForSequenceClassification if labels else AutoModelForCausalLM
    model, info = kind.from_pretrained(folder, use_safetensors=True, output_loading_info=True)
    if info["missing_keys"]:
        raise SystemExit(f"{Path(folder).name}: no weights for {sorted(info['missing_keys'])[0]}")
    return model.to(torch.bfloat16 if half else torch.float32)


def tokenizer(job: Job) -> Any:
    """Built from the file itself: the classes that the two versions of transformers would choose differ."""
    from transformers import PreTrainedTokenizerFast

    file = Path(job.inputs.reward if job.workload.stage == "reward_model" else job.inputs.policy) / "tokenizer.json"
    return PreTrainedTokenizerFast(tokenizer_file=str(file), padding_side="left", **job.inputs.marks)


def adapters(workload: Workload) -> Any:
    """peft's settings. A reward model's score head is trained in full."""
    from peft import LoraConfig

    reward = workload.stage == "reward_model"
    return LoraConfig(
        task_type="SEQ_CLS" if reward else "CAUSAL_LM",
        modules_to_save=["score"] if reward else None,
        r=LORA_RANK,
        lora_alpha=LORA_ALPHA,
        lora_dropout=0.0,
        target_modules=list(workload.lora),
        fan_in_fan_out=(workload.reward if reward else workload.policy).family == "gpt2",
    )
