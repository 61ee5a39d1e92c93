"""The reward models of the benchmark, each trained once from seeds and kept in the folder of the benchmark."""

from __future__ import annotations

from pathlib import Path

from benchmarks.hacking.plan import PAIRS, Judge
from benchmarks.hacking.raters import write_pairs
from benchmarks.tiny_world import train_judge, world_policy
from rlhf_studio.config import RewardTrainingConfig
from rlhf_studio.inputs.world.corpus import EVAL_SEED, write_prompts
from rlhf_studio.lessons.world_build.build import preferences
from rlhf_studio.lessons.world_build.check import sample_responses

EVAL_PAIRS, CALIBRATION = 500, 512


def reward_model(judge: Judge, seed: int, folder: Path, *, pairs: int = PAIRS) -> Path:
    """The folder of a trained reward model: the policy's first layers with a new head, one pass over the raters' pairs."""
    if folder.is_dir():
        return folder
    policy, tokenizer = world_policy()
    config = RewardTrainingConfig(batch_size=32, learning_rate=5e-4, warmup_steps=20, weight_decay=0.01)
    held_out = preferences(write_pairs(judge, EVAL_SEED, min(pairs, EVAL_PAIRS)))
    prompts = write_prompts(seed, CALIBRATION)
    written = sample_responses(policy, tokenizer, prompts, seed=seed)
    own = [prompt + answer.text for prompt, answer in zip(prompts, written, strict=True)]
    learned = preferences(write_pairs(judge, seed, pairs))
    return train_judge(folder, policy, tokenizer, judge.layers, learned, held_out, config, own, seed)
