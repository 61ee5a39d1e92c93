"""Small model folders, built from nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import parse_config
from tests.inputs.in_process import helpers_in_process, real_helpers

__all__ = ["helpers_in_process", "real_helpers"]

WORDS = ["<pad>", "<end>", "<unk>", "the", "film", "was", "good", "bad"]
MakeModel = Callable[..., Path]


def write_tokenizer(folder: Path, words: list[str] = WORDS, **settings: Any) -> None:
    """A word-level tokenizer: one token per word."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"pad_token": "<pad>", "eos_token": "<end>", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Writes a model folder: a GPT-2-like causal model unless told otherwise; ``config`` entries override, ``None`` removes."""

    def make(name: str = "policy", *, weights: bool = True, tokenizer: dict[str, Any] | None = None, **config: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        facts = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": len(WORDS), "n_positions": 64, **config}
        (folder / "config.json").write_text(json.dumps({key: value for key, value in facts.items() if value is not None}))
        if weights:
            rows = facts["vocab_size"] if type(facts["vocab_size"]) is int else len(WORDS)
            tensors = {
                "transformer.wte.weight": np.zeros((rows, 4), np.float32),
                "transformer.h.0.attn.c_attn.weight": np.zeros((4, 12), np.float32),
                "transformer.h.0.attn.c_attn.bias": np.zeros(12, np.float32),
            }
            save_file(tensors, str(folder / "model.safetensors"))
        write_tokenizer(folder, **(tokenizer or {}))
        return folder

    return make


@pytest.fixture
def make_reward(make_model: MakeModel) -> MakeModel:
    """Writes a classifier folder with the given labels."""

    def make(name: str = "reward", labels: tuple[str, ...] = ("score",), **config: Any) -> Path:
        id2label = {str(index): label for index, label in enumerate(labels)}
        return make_model(name, **{"architectures": ["GPT2ForSequenceClassification"], "id2label": id2label, **config})

    return make


@pytest.fixture
def make_config(make_model: MakeModel, make_reward: MakeModel, tmp_path: Path) -> Callable[..., RunConfig]:
    """A configuration whose every input exists; dotted settings override."""

    def make(**overrides: Any) -> RunConfig:
        if not (tmp_path / "policy").exists():
            make_model()
            make_reward()
            (tmp_path / "prompts.txt").write_text("the film was\n" * 100)
        data: dict[str, Any] = {
            "model": {"policy": str(tmp_path / "policy")},
            "data": {"prompts": str(tmp_path / "prompts.txt"), "max_prompt_tokens": 16, "eval_share": 0.0},
            "reward": {"components": [{"kind": "reward_model", "model": str(tmp_path / "reward")}]},
        }
        for dotted, value in overrides.items():
            section, name = dotted.split("__")
            data.setdefault(section, {})[name] = value
        return parse_config(data)

    return make
