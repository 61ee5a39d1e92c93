"""How much disk and memory a run needs, from the sizes of its models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rlhf_studio.config import RunConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.inputs.models import ModelFacts

BYTES_PER_RECORDED_TOKEN = 240  # 13 float32 quantities, two top-5 tables, and the token's text
MEGABYTE = 1_000_000


def disk_bytes(config: RunConfig, policy: ModelFacts | None) -> int:
    """Upper estimate of what the run writes: the kept checkpoints, one more while it is written, and the recorded tokens."""
    trained = trained_values(config, policy) if policy is not None else None
    checkpoint = 0 if trained is None else trained * 12  # float32 weights and AdamW's two moments
    every = config.engine.checkpoint_every or config.ppo.steps
    written = -(-config.ppo.steps // every)
    kept = min(config.engine.keep_checkpoints + 1, written)
    samples = min(config.engine.record_samples, config.ppo.batch_size)
    recorded = config.ppo.steps * samples * config.generation.response_length * BYTES_PER_RECORDED_TOKEN
    return kept * checkpoint + recorded


def trained_values(config: RunConfig, policy: ModelFacts) -> int | None:
    """Number of weights that PPO changes; with LoRA, r * (rows + columns) of every matrix, which is an upper estimate."""
    if not config.lora.enabled:
        return policy.parameters
    if not policy.tensors:
        return None
    return sum(config.lora.r * sum(tensor.shape) for tensor in policy.tensors.values() if len(tensor.shape) == 2)


def disk_problems(disk: int, download: int, workspace: Path, free_bytes: Callable[[Path], int]) -> Iterator[Problem]:
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
        parts = f"about {_size(disk)} of checkpoints and records" + (f" and {_size(download)} of downloads" if download else "")
        yield Problem("engine.keep_checkpoints", f"{parts} do not fit: {_size(free)} are free at {folder}; keep fewer, or free some space")


def memory_bytes(config: RunConfig, policy: ModelFacts | None, rewards: list[ModelFacts]) -> int | None:
    """Weights in float32, and gradients and AdamW's two moments of what is trained; activations come on top."""
    if policy is None or policy.parameters is None or any(reward.parameters is None for reward in rewards):
        return None
    reference = 0 if config.lora.enabled else policy.parameters
    frozen = policy.parameters + reference + sum(reward.parameters or 0 for reward in rewards)
    return 4 * frozen + 12 * (trained_values(config, policy) or 0)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, MEGABYTE) / 1e6:.0f} MB"
