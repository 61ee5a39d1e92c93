"""A reward model that was trained on chats, and what plain transformers says of any text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rlhf_studio.config.io import parse_config
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE
from rlhf_studio.runs.create import create_run

END = "<|im_end|>\n"


def chat_of(place: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"what is the capital of France {place}?"}]


def answers_of(place: int) -> tuple[str, str]:
    """The better one first."""
    return f"Paris is good {place}", f"dogs and cats {place}"


def train_chat_judge(policy: Path, folder: Path) -> Path:
    """Eighteen steps on 24 pairs of chats; gives the folder of the finished reward model."""
    said = [[{"role": "assistant", "content": answer} for answer in answers_of(place)] for place in range(24)]
    rows = [{"prompt": chat_of(place), "chosen": [good], "rejected": [bad]} for place, (good, bad) in enumerate(said)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": row["prompt"]}) + "\n" for row in rows))
    settings = {
        "stage": "reward_model",
        "model": {"policy": str(policy)},
        "data": {"source": str(folder / "pairs.jsonl"), "chat_template": True, "eval_share": 0.25},
        "reward_model": {"epochs": 6, "batch_size": 6, "learning_rate": 0.003},
        "engine": {"device": "cpu"},
    }
    create_run(folder / "run", parse_config(settings), name="judge", state="loading")
    assert run_engine(folder / "run", "train") == DONE
    return folder / "run" / "checkpoints" / "step-000018" / "reward_model"


class PlainScores:
    """Scores of whole texts by plain transformers, with the head's ``bias``, which that leaves out."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        self._model.config.pad_token_id = None
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self.bias = float(load_file(folder / "model.safetensors").get("score.bias", torch.zeros(1))[0])

    def __call__(self, text: str) -> float:
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            return float(self._model(input_ids=torch.tensor([ids])).logits[0, 0]) + self.bias


def ppo_settings(policy: Path, judge: Path, **component: Any) -> dict[str, Any]:
    return {
        "model": {"policy": str(policy)},
        "data": {"prompts": str(judge.parents[3] / "prompts.jsonl"), "chat_template": True},
        "reward": {"components": [{"kind": "reward_model", "model": str(judge), **component}]},
        "ppo": {"steps": 1, "batch_size": 8, "mini_batch_size": 8, "learning_rate": 1e-6},
        "generation": {"response_length": 8},
        "engine": {"device": "cpu", "record_samples": 8},
    }
