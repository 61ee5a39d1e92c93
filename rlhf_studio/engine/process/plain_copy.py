"""A model whose weights are plain numbers now, as an ordinary one: transformers does not save what it loaded from packed weights."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import PreTrainedModel

from rlhf_studio.language import S_
from rlhf_studio.units import format_bytes

SHARD = "5GB"


def plain_config(packed: PreTrainedModel) -> Any:
    """The model's settings without those of its packed weights."""
    config = copy.deepcopy(packed.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = [type(packed).__name__]
    return config


def plain_copy(packed: PreTrainedModel, config: Any) -> PreTrainedModel:
    """A fresh model of the same class with the same weights in the same memory. ``packed`` must not be used any more."""
    with torch.device("meta"):
        model: PreTrainedModel = type(packed)(config)
    model.load_state_dict(packed.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = packed.generation_config
    return model


def lack_of_room(needed: int, target: Path, dtype: str) -> str:
    """Why ``needed`` bytes of weights cannot be made and written into ``target``, after the model's name; empty where they can."""
    half = "" if dtype == "bfloat16" else S_("; --dtype bfloat16 needs half of it")
    for free, where in ((psutil.virtual_memory().available, S_("of memory")), (shutil.disk_usage(target).free, S_("on this disk"))):
        if needed > free:
            return S_(f"becomes {format_bytes(needed)}, but only {format_bytes(free)} {where} are free{half}")
    return ""
