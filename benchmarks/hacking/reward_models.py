"""The reward models of the benchmark, each trained once from seeds and kept in the folder of the benchmark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2ForSequenceClassification

from benchmarks.hacking.plan import PAIRS, Judge
from benchmarks.hacking.raters import write_pairs
from rlhf_studio.config import RewardTrainingConfig
from rlhf_studio.config.bundled import bundled_path
from rlhf_studio.engine.models.classifiers import normalise_scores
from rlhf_studio.engine.stages.reward_model.training import initialise_head, score_texts, train_reward_model
from rlhf_studio.inputs.world.corpus import EVAL_SEED, write_prompts
from rlhf_studio.lessons.world_build.build import preferences, save_model
from rlhf_studio.lessons.world_build.check import sample_responses

EVAL_PAIRS, CALIBRATION = 500, 512


def reward_model(judge: Judge, seed: int, folder: Path, *, pairs: int = PAIRS) -> Path:
    """The folder of a trained reward model: the policy's first layers with a new head, one pass over the raters' pairs.

    As the shipped one it then scores the policy's own reviews with mean 0 and standard deviation 1. One that is there already is not
    trained again; one that was left unfinished is.
    """
    if folder.is_dir():
        return folder
    source = str(bundled_path("bundled/world-policy"))
    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True)
    policy = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, local_files_only=True)
    model = _untrained(policy, judge.layers, seed)
    config = RewardTrainingConfig(batch_size=32, learning_rate=5e-4, warmup_steps=20, weight_decay=0.01)
    held_out = preferences(write_pairs(judge, EVAL_SEED, min(pairs, EVAL_PAIRS)))
    result = train_reward_model(model, tokenizer, preferences(write_pairs(judge, seed, pairs)), config, seed=seed, eval_pairs=held_out)
    prompts = write_prompts(seed, CALIBRATION)
    written = sample_responses(policy, tokenizer, prompts, seed=seed)
    normalise_scores(model, score_texts(model, tokenizer, [prompt + answer.text for prompt, answer in zip(prompts, written, strict=True)]))
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    save_model(model, tokenizer, unfinished, padding_side="right")
    (unfinished / "accuracy.json").write_text(json.dumps({"held_out_accuracy": result.eval_accuracy}), encoding="utf-8")
    unfinished.rename(folder)
    return folder


def _untrained(policy: Any, layers: int, seed: int) -> GPT2ForSequenceClassification:
    model = GPT2ForSequenceClassification(GPT2Config.from_dict({**policy.config.to_dict(), "n_layer": layers, "num_labels": 1}))
    model.transformer.load_state_dict(policy.transformer.state_dict(), strict=False)  # without the layers that it does not have
    initialise_head(model, seed)
    return model
