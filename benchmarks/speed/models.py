"""Random models, a tokenizer and prompts, made once from their configurations and read by every contestant; nothing is downloaded."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.workloads import Shape, Workload

END, PAD, FIRST_WORD = 0, 1, 2
POLICY, REWARD, TEXTS, IDS = "policy", "reward", "prompts.txt", "prompts.json"


def default_cache() -> Path:
    """Where models are kept unless RLHF_STUDIO_BENCH_CACHE says otherwise."""
    return Path(os.environ.get("RLHF_STUDIO_BENCH_CACHE", Path(__file__).resolve().parents[2] / "build" / "speed"))


@dataclass(frozen=True)
class Inputs:
    """Files that every contestant reads: model folders, prompts as texts and as token ids, and the names of the special tokens.

    For a stage but PPO, ``ids`` holds examples (see :func:`_save_examples`), and there are no texts.
    """

    policy: str
    reward: str
    texts: str
    ids: str
    marks: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> Inputs:
        marks = {"bos_token": "<eos>", "eos_token": "<eos>", "pad_token": "<pad>"}
        return cls(*(str(folder / part) for part in (POLICY, REWARD, TEXTS, IDS)), marks)


def prepare(workload: Workload, cache: Path) -> Inputs:
    """The workload's models and prompts, made now unless they are there."""
    folder = cache / f"{workload.name.removesuffix('-lora')}-{fingerprint(workload)}"
    if not folder.exists():
        part = folder.with_name(f".{folder.name}-{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        if workload.stage != "reward_model":
            _save_model(workload.policy, part / POLICY, labels=0, seed=0)
        if workload.stage != "sft":
            _save_model(workload.reward, part / REWARD, labels=1, seed=1)
        if workload.stage == "ppo":
            _save_prompts(workload, part)
        else:
            _save_examples(workload, part)
        part.rename(folder)
    return Inputs.of(folder)


def fingerprint(workload: Workload) -> str:
    """Of what the files depend on, so that a changed definition is never run with the old models."""
    parts = [asdict(workload.policy), asdict(workload.reward), workload.prompt, workload.batch]
    parts += [] if workload.stage == "ppo" else [workload.stage, workload.completion, workload.all_updates]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def model_config(shape: Shape, labels: int) -> Any:
    """The transformers configuration, without dropout."""
    from transformers import GPT2Config, GPTNeoXConfig, LlamaConfig

    tokens = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": PAD, "vocab_size": shape.vocabulary}
    tokens |= {"num_labels": labels} if labels else {}
    if shape.family == "gpt2":
        sizes = {"n_layer": shape.layers, "n_embd": shape.width, "n_head": shape.heads, "n_positions": shape.positions}
        return GPT2Config(**tokens, **sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, summary_first_dropout=0.0)
    sizes = {"num_hidden_layers": shape.layers, "hidden_size": shape.width, "num_attention_heads": shape.heads}
    sizes |= {"intermediate_size": shape.inner or 4 * shape.width, "max_position_embeddings": shape.positions}
    if shape.family == "llama":
        return LlamaConfig(**tokens, **sizes, num_key_value_heads=shape.key_heads or shape.heads, tie_word_embeddings=True)
    return GPTNeoXConfig(**tokens, **sizes, hidden_dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0)


def _save_model(shape: Shape, folder: Path, labels: int, seed: int) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(seed)
    kind = AutoModelForSequenceClassification if labels else AutoModelForCausalLM
    kind.from_config(model_config(shape, labels)).save_pretrained(folder)
    _save_tokenizer(shape.vocabulary, folder)


def _save_tokenizer(vocabulary: int, folder: Path) -> None:
    """One word per id, so that a text read back is the same ids: everybody scores the very tokens that were sampled."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    words = ["<eos>", "<pad>", *(f"w{number}" for number in range(FIRST_WORD, vocabulary))]
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    backend.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<eos>", eos_token="<eos>", pad_token="<pad>", padding_side="left"
    ).save_pretrained(folder)


def _save_examples(workload: Workload, folder: Path) -> None:
    """For each example the token ids of its prompt and of its completion; a reward model's have two completions."""
    draw = random.Random(7)
    vocabulary = (workload.policy if workload.stage == "sft" else workload.reward).vocabulary

    def ids(shortest: int, longest: int) -> list[int]:
        return [draw.randrange(FIRST_WORD, vocabulary) for _ in range(draw.randint(shortest, longest))]

    completions = 1 if workload.stage == "sft" else 2
    count = workload.batch * workload.all_updates
    rows = [[ids(*workload.prompt), *(ids(*workload.completion) for _ in range(completions))] for _ in range(count)]
    (folder / IDS).write_text(json.dumps(rows), encoding="utf-8")


def _save_prompts(workload: Workload, folder: Path) -> None:
    draw = random.Random(7)
    low, high = workload.prompt
    count = workload.batch * workload.all_updates
    rows = [[draw.randrange(FIRST_WORD, workload.policy.vocabulary) for _ in range(draw.randint(low, high))] for _ in range(count)]
    (folder / IDS).write_text(json.dumps(rows), encoding="utf-8")
    (folder / TEXTS).write_text("\n".join(" ".join(f"w{token}" for token in row) for row in rows) + "\n", encoding="utf-8")
