"""How much disk a run needs, and whether it is free."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rlhf_studio.config import RunConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.estimate.counts import trained_in_files
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.units import format_bytes

BYTES_PER_RECORDED_TOKEN = 240  # 13 float32 quantities, two top-5 tables, and the token's text
BYTES_PER_SAVED_WEIGHT = 4  # in a snapshot: a float32 weight
BYTES_PER_TRAINED_WEIGHT = 12  # in a checkpoint: a float32 weight and AdamW's two moments


def disk_bytes(config: RunConfig, policy: ModelFacts | None) -> int:
    """Upper estimate of what the run writes: the kept checkpoints, one more while it is written, snapshots, and the recorded tokens."""
    trained = trained_in_files(config, policy) if policy is not None else None
    checkpoint = 0 if trained is None else trained * BYTES_PER_TRAINED_WEIGHT
    every = config.engine.checkpoint_every or config.ppo.steps
    written = -(-config.ppo.steps // every)
    kept = min(config.engine.keep_checkpoints + 1 + (config.engine.keep_best != "none"), written)
    snapshots = config.ppo.steps // config.engine.snapshot_every if config.engine.snapshot_every else 0
    snapshot = 0 if trained is None else trained * BYTES_PER_SAVED_WEIGHT
    samples = min(config.engine.record_samples, config.ppo.batch_size)
    lora = config.lora  # an adapter whose base exists only in memory is saved together with that base
    base = 4 * (policy.parameters or 0) if policy is not None and lora.enabled and (lora.changes_base or policy.base) else 0
    recorded = config.ppo.steps * samples * config.generation.response_length * BYTES_PER_RECORDED_TOKEN
    return kept * checkpoint + snapshots * snapshot + base + recorded


def disk_problems(disk: int, download: int, workspace: Path, free_bytes: Callable[[Path], int]) -> Iterator[Problem]:
    """Whether ``disk`` bytes of the run and ``download`` bytes of weights fit where the workspace is, or will be."""
    folder = Path(os.path.abspath(workspace))
    while not folder.exists():
        folder = folder.parent
    try:
        free = free_bytes(folder)
    except OSError as error:
        yield Problem("", f"the workspace {workspace} cannot be used: {error.strerror or error}")
        return
    needed = disk + download
    if needed > free:
        downloads = f" and {format_bytes(download)} of downloads" if download else ""
        parts = f"about {format_bytes(disk)} of checkpoints and records{downloads}"
        message = f"{parts} do not fit: {format_bytes(free)} are free at {folder}; keep fewer, or free some space"
        yield Problem("engine.keep_checkpoints", message)
