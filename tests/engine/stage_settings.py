"""Small examples and settings for a run of each stage that learns from examples."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.engine.small_models import save_policy

STAGES = ("sft", "reward_model", "dpo")


def write_examples(folder: Path) -> None:
    """Twenty demonstrations and pairs of the words that the small tokenizer knows, with five prompts."""
    draw = random.Random(3)

    def words(count: int) -> str:
        return " ".join(f"w{draw.randrange(1, 16)}" for _ in range(count))

    rows = [{"prompt": f"w{1 + place % 5} w2", "chosen": f" {words(4)}", "rejected": f" {words(3 + place % 3)}"} for place in range(20)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    shown = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in rows]
    (folder / "demonstrations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in shown), encoding="utf-8")


def settings(folder: Path, stage: str, lora: bool = False, family: str = "gpt2", **training: Any) -> dict[str, Any]:
    """A run of eight steps, with checkpoints after every third."""
    if not (folder / "policy").exists():
        save_policy(folder / "policy", family, scale=4.0)
    if not (folder / "pairs.jsonl").exists():
        write_examples(folder)
    source = "demonstrations.jsonl" if stage == "sft" else "pairs.jsonl"
    values: dict[str, Any] = {
        "stage": stage,
        "model": {"policy": str(folder / "policy")},
        "lora": {"enabled": lora, "r": 2},
        "data": {"source": str(folder / source), "max_tokens": 32, "eval_share": 0.2, "drop_duplicates": False},
        stage: {"epochs": 2, "batch_size": 4, "learning_rate": 0.01, "eval_every": 3, **training},
        "engine": {"device": "cpu", "checkpoint_every": 3, "watch_every": 4, "record_samples": 4},
    }
    if stage != "reward_model":  # which writes nothing
        values |= {"engine": {**values["engine"], "watch_prompts": 2}, "generation": {"response_length": 5}}
    return values
