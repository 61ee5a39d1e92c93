"""What the benchmarks that train runs on the review world have in common: their reward models, their settings, their held-out prompts."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2ForSequenceClassification

from rlhf_studio.config import RewardTrainingConfig, RunConfig
from rlhf_studio.config.bundled import bundled_path
from rlhf_studio.config.io import with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.engine.loop.generate import decode_responses, generate
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.classifiers import normalise_scores
from rlhf_studio.engine.stages.reward_model.training import Preference, initialise_head, score_texts, train_reward_model
from rlhf_studio.engine.types import PromptBatch, TokenBatch
from rlhf_studio.inputs.world.gold import gold_score
from rlhf_studio.lessons.world_build.build import save_model

HELD_OUT_PROMPTS = 128


def world_policy() -> tuple[Any, Any]:
    """The bundled policy and its tokenizer."""
    source = str(bundled_path("bundled/world-policy"))
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    return AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, local_files_only=True), tokenizer


def train_judge(
    folder: Path, base: Any, tokenizer: Any, layers: int, pairs: Sequence[Preference], held_out: Sequence[Preference],
    config: RewardTrainingConfig, own: Sequence[str], seed: int,
) -> Path:  # fmt: skip
    """A trained reward model in ``folder``: the first layers of a language model with a new head.

    As the shipped one it then scores the policy's ``own`` reviews with mean 0 and standard deviation 1. One that is there already is not
    trained again; one that was left unfinished is.
    """
    if folder.is_dir():
        return folder
    model = _untrained(base, layers, seed)
    result = train_reward_model(model, tokenizer, pairs, config, seed=seed, eval_pairs=held_out)
    normalise_scores(model, score_texts(model, tokenizer, own))
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    save_model(model, tokenizer, unfinished, padding_side="right")
    (unfinished / "accuracy.json").write_text(json.dumps({"held_out_accuracy": result.eval_accuracy}), encoding="utf-8")
    unfinished.rename(folder)
    return folder


def _untrained(base: Any, layers: int, seed: int) -> GPT2ForSequenceClassification:
    model = GPT2ForSequenceClassification(GPT2Config.from_dict({**base.config.to_dict(), "n_layer": layers, "num_labels": 1}))
    model.transformer.load_state_dict(base.transformer.state_dict(), strict=False)  # without the layers that it does not have
    initialise_head(model, seed)
    return model


def config_of(settings: Mapping[str, Any]) -> RunConfig:
    """The recipe ``world`` with these settings."""
    config = with_values(load_recipe("world").config, dict(settings))
    assert isinstance(config, RunConfig)
    return config


def judged_by(judge: Path) -> list[dict[str, Any]]:
    """``reward.components`` with one reward model."""
    return [{"kind": "reward_model", "name": "sentiment", "model": str(judge), "weight": 1.0}]


def held_out_prompts(trainer: Trainer, answers: int) -> PromptBatch:
    """Every held-out prompt, ``answers`` times: all of the first prompt's, then of the second's, and so on."""
    batch = trainer.prompts.watched(HELD_OUT_PROMPTS)
    assert batch is not None and len(batch.texts) == HELD_OUT_PROMPTS
    return batch.repeat(answers)


def fresh_answers(trainer: Trainer, asked: PromptBatch, generator: torch.Generator) -> tuple[TokenBatch, np.ndarray]:
    """New answers of the policy as it is now, and (prompts, answers) their gold. The trainer's own random numbers are not touched."""
    models = trainer.models
    tokens, _ = generate(models, asked, models.config.generation, generator)
    golds = [gold_score(prompt, answer) for prompt, answer in zip(asked.texts, decode_responses(models, tokens), strict=True)]
    return tokens, np.array(golds).reshape(HELD_OUT_PROMPTS, -1)


def filled(page: str, name: str, blocks: Mapping[str, Callable[[dict[str, Any]], list[str]]], scores: dict[str, Any]) -> str:
    """The page with every block ``<!-- name: block -->`` made anew. Raises KeyError for a block that is not known."""
    block = re.compile(rf"(<!-- {name}: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return block.sub(lambda match: match[1] + "\n".join(blocks[match[2]](scores)) + "\n" + match[3], page)
