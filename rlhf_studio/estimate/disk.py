"""How much disk a run needs, and how many weights it trains, from the sizes of its models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rlhf_studio.config import RunConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.inputs.lora_targets import is_target, target_names
from rlhf_studio.inputs.models import ModelFacts

BYTES_PER_RECORDED_TOKEN = 240  # 13 float32 quantities, two top-5 tables, and the token's text
BITS = {"none": 32, "8bit": 8, "4bit": 4}  # per weight of the policy's base
MEGABYTE = 1_000_000


def disk_bytes(config: RunConfig, policy: ModelFacts | None) -> int:
    """Upper estimate of what the run writes: the kept checkpoints, one more while it is written, and the recorded tokens."""
    trained = trained_values(config, policy) if policy is not None else None
    checkpoint = 0 if trained is None else trained * 12  # float32 weights and AdamW's two moments
    every = config.engine.checkpoint_every or config.ppo.steps
    written = -(-config.ppo.steps // every)
    kept = min(config.engine.keep_checkpoints + 1, written)
    samples = min(config.engine.record_samples, config.ppo.batch_size)
    lora = config.lora  # an adapter whose base exists only in memory brings that base along
    base = 4 * (policy.parameters or 0) if policy is not None and lora.enabled and (lora.changes_base or policy.base) else 0
    recorded = config.ppo.steps * samples * config.generation.response_length * BYTES_PER_RECORDED_TOKEN
    return kept * checkpoint + base + recorded


def trained_values(config: RunConfig, policy: ModelFacts) -> int | None:
    """Number of weights that PPO changes.

    With LoRA r * (rows + columns) of every adapted matrix, DoRA's lengths and the biases that learn; an upper estimate, since
    embeddings count as matrices where every layer is adapted, and the longer side as the outputs.
    """
    lora = config.lora
    if not lora.enabled:
        return policy.parameters
    if not policy.tensors:
        return None
    names = target_names(lora)
    adapted = [
        tensor.shape
        for name, tensor in policy.tensors.items()
        if len(tensor.shape) == 2 and (names == ["auto"] or is_target(name.removesuffix(".weight"), names))
    ]
    values = sum(lora.r * sum(shape) + lora.use_dora * max(shape) for shape in adapted)
    if lora.bias == "none":
        return values
    biases = {name.removesuffix(".bias"): tensor.values for name, tensor in policy.tensors.items() if name.endswith(".bias")}
    everywhere = lora.bias == "all" or names == ["auto"]
    return values + sum(count for layer, count in biases.items() if everywhere or is_target(layer, names))


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


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, MEGABYTE) / 1e6:.0f} MB"
