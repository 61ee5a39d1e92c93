"""Runs of the recipe ``world`` in this process, and new answers of their policy to the held-out prompts.

The answers are drawn by the engine's own sampling with random numbers of their own, so the training is what it would be without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.engine.loop.generate import decode_responses, generate
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.types import PromptBatch, TokenBatch
from rlhf_studio.inputs.world.gold import gold_score

HELD_OUT_PROMPTS = 128


def config_of(settings: Mapping[str, Any]) -> RunConfig:
    """The recipe with these settings."""
    config = with_values(load_recipe("world").config, dict(settings))
    assert isinstance(config, RunConfig)
    return config


def held_out_prompts(trainer: Trainer, answers: int) -> PromptBatch:
    """Every held-out prompt, equally often: all answers to the first, then to the second, and so on."""
    batch = trainer.prompts.watched(HELD_OUT_PROMPTS)
    assert batch is not None and len(batch.texts) == HELD_OUT_PROMPTS
    return batch.repeat(answers // HELD_OUT_PROMPTS)


def fresh_answers(trainer: Trainer, asked: PromptBatch, generator: torch.Generator) -> tuple[TokenBatch, np.ndarray]:
    """New answers of the policy as it is now, and (prompts, answers) their gold. The trainer's own random numbers are not touched."""
    models = trainer.models
    tokens, _ = generate(models, asked, models.config.generation, generator)
    golds = [gold_score(prompt, answer) for prompt, answer in zip(asked.texts, decode_responses(models, tokens), strict=True)]
    return tokens, np.array(golds).reshape(HELD_OUT_PROMPTS, -1)
