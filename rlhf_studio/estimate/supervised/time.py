"""Seconds per step of a supervised stage, from this machine's matrix rate."""

from __future__ import annotations

import math

from rlhf_studio.config import DPORunConfig, SupervisedConfig
from rlhf_studio.estimate.counts import RunModels, parameters
from rlhf_studio.estimate.speed import FASTEST, SECONDS_PER_LAUNCH, SLOWEST, launches_per_block
from rlhf_studio.estimate.supervised.sizes import tokens_per_step
from rlhf_studio.inputs.checks.examples import ExampleTokens


def seconds_per_training_step(
    config: SupervisedConfig, models: RunModels, tokens: ExampleTokens | None, device: str, rate: float
) -> tuple[float, float] | None:
    """(least, most) seconds of one step; None when the model's size or the examples' lengths are unknown.

    A token costs 2 operations per weight forward and 4 backward, 2 when the weights are frozen under LoRA. With gradient checkpointing the
    forward pass is made twice. DPO's reference reads every text as well.
    """
    count = parameters(models.policy)
    if count is None or tokens is None or models.policy.shape is None:
        return None
    per_token = (4 if config.lora.enabled else 6) + (2 if config.model.gradient_checkpointing else 0)
    operations = per_token * count
    if isinstance(config, DPORunConfig):
        reference = parameters(models.reference) if models.reference else count
        if reference is None:
            return None
        operations += 2 * reference
    ideal = tokens_per_step(config, tokens) * operations / rate
    launches = 0.0
    if device == "cuda":  # a small model is bound by starting kernels: three passes per micro-batch, and one of the reference
        passes = (4 if isinstance(config, DPORunConfig) else 3) * math.ceil(config.training.batch_size / config.training.micro_batch)
        launches = passes * models.policy.shape.layers * launches_per_block(models.policy, adapted=config.lora.enabled) * SECONDS_PER_LAUNCH
    return FASTEST * ideal + launches, SLOWEST * ideal + 2 * launches
