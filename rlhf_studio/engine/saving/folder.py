"""How a checkpoint or a snapshot is written, whatever the stage.

It is filled as a temporary folder on the same volume; ``manifest.json`` with every file's size and SHA-256 comes last; then the folder is
renamed into place. Which folders count is decided in :mod:`rlhf_studio.runs.checkpoints`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rlhf_studio.config import StageConfig
from rlhf_studio.engine.compute.sharding import shard_like
from rlhf_studio.runs import checkpoints
from rlhf_studio.runs.checkpoints import FORMAT, sha256
from rlhf_studio.runs.paths import MANIFEST, checkpoint_dir, snapshot_dir
from rlhf_studio.system import sync

Fill = Callable[[Path], None]
"""Writes a checkpoint's files into an empty folder."""


def write_checkpoint(run_dir: Path, step: int, fill: Fill, keep: int, best_by: str | None = None) -> Path:
    """Write the checkpoint of ``step`` and remove older ones beyond ``keep``, but for the best by the metric ``best_by``.

    Returns its folder. If the process dies at any moment of this, the earlier checkpoint or this one is complete.

    Raises:
        OSError: the disk is full or fails, or the run folder is gone; it is not made again.
    """
    final = checkpoint_dir(run_dir, step)
    temporary = checkpoints.begin(final)
    fill(temporary)
    _write_manifest(temporary, step, checkpoints.recorded_at(run_dir, step), keep_best=best_by)
    checkpoints.put_in_place(temporary, final)
    checkpoints.prune(final, keep, best_by)
    return final


def write_snapshot(run_dir: Path, step: int, fill: Fill, settings: StageConfig) -> Path:
    """Write the snapshot of ``step``, complete or absent. Returns its folder. Raises OSError as :func:`write_checkpoint`.

    ``settings``: those in force; they lie in the manifest.
    """
    final = snapshot_dir(run_dir, step)
    temporary = checkpoints.begin(final)
    fill(temporary)
    _write_manifest(temporary, step, checkpoints.recorded_at(run_dir, step), settings=settings.model_dump(mode="json"))
    checkpoints.put_in_place(temporary, final)
    return final


def save_state(folder: Path, numbers: Mapping[str, Any], tensors: Mapping[str, Tensor], optimizer: Mapping[str, Any]) -> None:
    """Write what training goes on from beside the weights: numbers (JSON), random states (uint8), the optimizer's state dict."""
    save_file(contiguous(_flat_optimizer(optimizer)), folder / "optimizer.safetensors")
    save_file(contiguous(tensors), folder / "random.safetensors")
    (folder / "state.json").write_text(json.dumps(numbers, indent=1, allow_nan=False), encoding="utf-8")


def restore_optimizer(flat: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Load what :func:`save_state` wrote of an optimizer into ``optimizer``. Returns its state dict."""
    state = optimizer.state_dict()
    state["state"] = {}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for key, tensor in flat.items():
        index, name = key.split(".", 1)
        own = tensor if name == "step" else shard_like(tensor, parameters[int(index)])
        state["state"].setdefault(int(index), {})[name] = own
    optimizer.load_state_dict(state)
    return state


def contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as safetensors takes them: on the CPU, without gradients, each in one piece."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _flat_optimizer(state: Mapping[str, Any]) -> dict[str, Tensor]:
    return {f"{index}.{name}": value for index, entry in state["state"].items() for name, value in entry.items()}


def _write_manifest(folder: Path, step: int, recorded_at: float | None, **more: Any) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        sync(path)
    entries = {str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in files}
    manifest = {"format": FORMAT, "step": step, "recorded_at": recorded_at, **more, "files": entries}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    sync(folder / MANIFEST)
    sync(folder)
