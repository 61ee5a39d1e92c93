"""TRL's GRPOTrainer, or RLOOTrainer, on a model of a few thousand weights: a program for the environment that has TRL 1.16.

    python tests/attach/trl_program.py FOLDER (grpo|rloo|dpo|kto|sft|reward) (plain|watch|callback)

It writes to FOLDER what the trainer itself had of every response, and prints a sum over its weights.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import (
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    KTOConfig,
    KTOTrainer,
    RewardConfig,
    RewardTrainer,
    RLOOConfig,
    RLOOTrainer,
    SFTConfig,
    SFTTrainer,
)

STEPS = 20


def a_model(folder: Path) -> tuple[str, PreTrainedTokenizerFast]:
    """The folder of a saved model, with a tokenizer of bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({token: number for number, token in enumerate(["<eos>", "<pad>", *alphabet])}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>", padding_side="left")
    torch.manual_seed(0)
    size: dict[str, Any] = {"vocab_size": len(tokenizer), "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, **size))
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return str(folder / "model"), tokenizer


def vowels(completions: list[str], **more: Any) -> list[float]:
    """A reward."""
    return [float(sum(text.count(letter) for letter in "aeiou")) for text in completions]


def short(completions: list[str], **more: Any) -> list[float | None]:
    """A reward that says nothing of some responses."""
    return [None if len(text) % 5 == 0 else -0.1 * len(text) for text in completions]


PLAIN: dict[str, Any] = {
    "max_steps": STEPS, "per_device_train_batch_size": 4, "logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True,
    "bf16": False, "seed": 3, "learning_rate": 1e-3, "disable_tqdm": True, "gradient_checkpointing": False,
}  # fmt: skip
TEXTS = ("the film", "a play of", "music", "one day")


def sampling(folder: Path, kind: str, path: str, tokenizer: Any, had: list[dict[str, Any]]) -> Any:
    """A trainer that samples while it learns; what it computes goes to ``had``."""
    config, trainer_class = (GRPOConfig, GRPOTrainer) if kind == "grpo" else (RLOOConfig, RLOOTrainer)
    args = config(
        output_dir=str(folder / "out"), gradient_accumulation_steps=2, num_generations=4, max_completion_length=12, beta=0.05,
        reward_weights=[1.0, 0.5], num_iterations=2 if kind == "grpo" else 1, disable_dropout=True, **PLAIN,
    )  # fmt: skip
    rows = Dataset.from_list([{"prompt": text} for text in TEXTS] * 10)
    trainer = trainer_class(model=path, args=args, reward_funcs=[vowels, short], train_dataset=rows, processing_class=tokenizer)
    _listen(trainer, had)
    return trainer


def supervised(folder: Path, kind: str, path: str, tokenizer: Any) -> Any:
    """A trainer that learns from given examples, of which two are held out."""
    config, trainer_class = {
        "sft": (SFTConfig, SFTTrainer),
        "dpo": (DPOConfig, DPOTrainer),
        "kto": (KTOConfig, KTOTrainer),
        "reward": (RewardConfig, RewardTrainer),
    }[kind]
    rows = {
        "sft": [{"text": f"{text} was good"} for text in TEXTS],
        "kto": [{"prompt": text, "completion": word, "label": word == " good"} for text in TEXTS for word in (" good", " bad")],
    }.get(kind, [{"prompt": text, "chosen": " good", "rejected": " bad"} for text in TEXTS])
    args = config(output_dir=str(folder / "out"), eval_strategy="steps", eval_steps=5, per_device_eval_batch_size=2, **PLAIN)
    train, held_out = Dataset.from_list(rows * 10), Dataset.from_list(rows[:2])
    return trainer_class(model=path, args=args, train_dataset=train, eval_dataset=held_out, processing_class=tokenizer)


def main(folder: Path, kind: str, how: str) -> None:
    path, tokenizer = a_model(folder)
    had: list[dict[str, Any]] = []
    samples = kind in ("grpo", "rloo")
    trainer = sampling(folder, kind, path, tokenizer, had) if samples else supervised(folder, kind, path, tokenizer)
    if how != "plain":
        from rlhf_studio.attach import Studio

        studio = Studio(run=how, workspace=folder)
        if how == "watch":
            studio.watch(trainer)
        else:
            trainer.add_callback(studio)
    trainer.train()
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in trainer.model.state_dict().values())).hexdigest()
    (folder / "had.json").write_text(json.dumps({"had": had, "logs": trainer.state.log_history[:-1]}))  # the last one sums up
    print("weights", digest)


def _listen(trainer: Any, had: list[dict[str, Any]]) -> None:
    """Note what the trainer's own methods return."""
    generate, rewards = trainer._generate_and_score_completions, trainer._calculate_rewards

    def noted_rewards(inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
        result = rewards(inputs, prompts, completions, ids)
        had.append({"prompts": prompts, "completions": completions, "ids": ids, "rewards": result.tolist()})
        return result

    def noted(inputs: Any) -> Any:
        batch = generate(inputs)
        own = {name: batch[name].tolist() for name in ("advantages", "old_per_token_logps", "ref_per_token_logps") if name in batch}
        had[-1] |= own | ({"old_sums": batch["old_logps"].tolist()} if "old_logps" in batch else {})
        return batch

    trainer._generate_and_score_completions, trainer._calculate_rewards = noted, noted_rewards


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
