"""An adapter added into its base. The one module of this room that loads torch; only the command's own process imports it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.models.merging import logits_at_sight, merged_for_good, require_same
from rlhf_studio.jobs.export.targets import check_room, refuse
from rlhf_studio.jobs.export.weights import Base, Chosen, OnProgress, write_generation, write_tokenizer


def write_merged(chosen: Chosen, base: Base, folder: Path, config: StageConfig, device: str, on_progress: OnProgress) -> str:
    """Add the adapter into the base in float32, then round to the run's number format. Returns that format's name.

    A forward pass compares the merged model with the adapter on its base; another one compares the written model with the merged one.

    Raises ConfigError when the base cannot be loaded, the adapter does not fit it, or a forward pass gives other numbers.
    """
    on_progress("Loading the base model", None)
    dtype = dtype_of(config, device)
    try:
        model = AutoModelForCausalLM.from_pretrained(base.location, revision=base.revision or "main", dtype=torch.float32)
        on_progress("Adding the adapter into the base", None)
        merged: Any = merged_for_good(PeftModel.from_pretrained(model, chosen.policy))
        expected = logits_at_sight(_rounded(merged, dtype))
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        raise _refuse("the adapter cannot be added into its base", base, error) from error
    merged = merged.to(dtype)
    merged.config.dtype = dtype
    check_room(folder, sum(parameter.numel() * parameter.element_size() for parameter in merged.parameters()))
    on_progress("Writing the merged model", None)
    merged.save_pretrained(folder)
    del model, merged  # before the next one is loaded
    on_progress("Comparing what was written with the checkpoint", None)
    try:
        written = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        require_same(logits_at_sight(written), expected, "the merged model, read back from its file,")
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        raise _refuse("this model cannot be written with the adapter added into its base", base, error) from error
    write_tokenizer(chosen, folder)
    write_generation(folder, config)
    return str(dtype).removeprefix("torch.")


def _refuse(what: str, base: Base, error: Exception) -> ConfigError:
    return refuse(f"{what} {base.name}: {' '.join(str(error).split())[:300]}; take the adapter instead")


@torch.no_grad()
def _rounded(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """The model in float32, with every saved number rounded to ``dtype``."""
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(tensor.to(dtype))
    return model


def dtype_of(config: StageConfig, device: str) -> torch.dtype:
    """The number format in which the run computed. ``device``: what the run says that it computed on, with the format where
    that is not float32."""
    if config.model.dtype != "auto":
        return torch.float32 if config.model.dtype == "float32" else torch.bfloat16
    named = (kind for kind in (torch.bfloat16, torch.float16) if str(kind).removeprefix("torch.") in device)
    return next(named, torch.float32)
