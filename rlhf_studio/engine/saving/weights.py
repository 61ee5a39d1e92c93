"""The weights of a checkpoint's model folder, copied into a model in memory bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from rlhf_studio.engine.compute.sharding import local_part, shard_like, unsharded_class
from rlhf_studio.engine.models.adapters import adapter_weights
from rlhf_studio.language import S_


def restore_weights(model: PreTrainedModel | PeftModel, folder: Path) -> None:
    """Copy the saved weights, or with LoRA those of the adapter. All of them are read and compared before any is written.

    Raises OSError, SafetensorError, RuntimeError or ValueError when they cannot be read, or their names or shapes do not fit.
    """
    if isinstance(model, PeftModel):
        saved, target = load_file(folder / "adapter_model.safetensors"), adapter_weights(model)
    else:
        saved, target = _saved(folder, model), model.state_dict()
    if set(saved) != set(target) or any(saved[name].shape != target[name].shape for name in saved):
        raise ValueError(S_("its weights do not fit this model; was the model or LoRA setting changed?"))
    with torch.no_grad():
        for name, tensor in saved.items():
            local_part(target[name]).copy_(local_part(shard_like(tensor, target[name])))


def _saved(folder: Path, model: PreTrainedModel) -> dict[str, Tensor]:
    """The saved state dict, read by the model's own class, which knows about shards, tied weights and renamed layers."""
    kind: Any = unsharded_class(model)
    saved: PreTrainedModel = kind.from_pretrained(folder, dtype=next(model.parameters()).dtype, use_safetensors=True)
    return dict(saved.state_dict())
