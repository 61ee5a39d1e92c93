"""How much disk a supervised run needs."""

from __future__ import annotations

from rlhf_studio.config import SupervisedConfig
from rlhf_studio.inputs.checks.examples import ExampleTokens
from rlhf_studio.inputs.estimate.counts import trained_parameters
from rlhf_studio.inputs.estimate.disk import (
    BYTES_PER_RECORDED_TOKEN,
    BYTES_PER_SAVED_WEIGHT,
    BYTES_PER_TRAINED_WEIGHT,
    BYTES_PER_WATCHED_TOKEN,
    OnDisk,
    checkpoints_added,
    snapshots_added,
)
from rlhf_studio.inputs.estimate.supervised.sizes import texts_per_example
from rlhf_studio.inputs.models.facts import ModelFacts

BYTES_PER_STEP = 400  # about twenty metrics


def training_disk_bytes(
    config: SupervisedConfig, facts: ModelFacts | None, steps: int | None, tokens: ExampleTokens | None, on_disk: OnDisk
) -> int:
    """Upper estimate of what the run adds to what is ``on_disk``: kept checkpoints and one more meanwhile, snapshots, recorded examples.

    Where the number of steps is not known yet, as many checkpoints as the setting keeps are counted, and no records.
    """
    engine = config.engine
    trained = (trained_parameters(config, facts) or 0) if facts is not None else 0
    planned = on_disk.steps + max(engine.checkpoint_every * (engine.keep_checkpoints + 1), 1) if steps is None else steps
    added = checkpoints_added(engine, planned, on_disk) * trained * BYTES_PER_TRAINED_WEIGHT
    added += snapshots_added(engine, planned, on_disk) * trained * BYTES_PER_SAVED_WEIGHT
    if facts is not None and config.lora.enabled and (config.lora.changes_base or facts.base) and not on_disk.steps:
        added += BYTES_PER_SAVED_WEIGHT * (facts.parameters or 0)  # an adapter whose base exists only in memory is saved together with it
    return added + (0 if steps is None else _recorded(config, max(0, steps - on_disk.steps), tokens))


def _recorded(config: SupervisedConfig, steps: int, tokens: ExampleTokens | None) -> int:
    """Upper estimate of what the run's database grows by in so many steps."""
    engine = config.engine
    longest = config.data.max_tokens if tokens is None or not tokens.complete else min(tokens.longest, config.data.max_tokens)
    examples = min(engine.record_samples, config.training.batch_size) * texts_per_example(config)
    looks = steps // engine.watch_every + 2  # at the beginning and at the end
    generation = getattr(config, "generation", None)
    answers = 0 if generation is None else engine.watch_prompts * generation.response_length * BYTES_PER_WATCHED_TOKEN
    return steps * BYTES_PER_STEP + looks * (examples * longest * BYTES_PER_RECORDED_TOKEN + answers)
