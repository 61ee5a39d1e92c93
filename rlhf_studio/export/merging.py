"""An adapter added into its base. The one module of this room that loads torch; only the command's own process imports it."""

from __future__ import annotations

from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from rlhf_studio.config import RunConfig
from rlhf_studio.export.places import check_room, refuse
from rlhf_studio.export.weights import Base, Chosen, Told, write_generation, write_tokenizer


def write_merged(chosen: Chosen, base: Base, folder: Path, config: RunConfig, device: str, told: Told) -> str:
    """Add the adapter into the base in float32, then round to the run's number format. Returns that format's name.

    Raises ConfigError when the base cannot be loaded, or the adapter does not fit it.
    """
    told("Loading the base model", None)
    dtype = dtype_of(config, device)
    try:
        model = AutoModelForCausalLM.from_pretrained(base.place, revision=base.revision or "main", dtype=torch.float32)
        told("Adding the adapter into the base", None)
        merged = PeftModel.from_pretrained(model, chosen.policy).merge_and_unload(safe_merge=True)
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        cause = " ".join(str(error).split())[:300]
        raise refuse(f"the adapter cannot be added into its base {base.name}: {cause}") from error
    merged = merged.to(dtype)
    merged.config.dtype = dtype
    check_room(folder, sum(parameter.numel() * parameter.element_size() for parameter in merged.parameters()))
    told("Writing the merged model", None)
    merged.save_pretrained(folder)
    write_tokenizer(chosen, folder)
    write_generation(folder, config)
    return str(dtype).removeprefix("torch.")


def dtype_of(config: RunConfig, device: str) -> torch.dtype:
    """The number format in which the run computed. ``device``: what the run says that it computed on, with the format where
    that is not float32."""
    if config.model.dtype != "auto":
        return torch.float32 if config.model.dtype == "float32" else torch.bfloat16
    named = (kind for kind in (torch.bfloat16, torch.float16) if str(kind).removeprefix("torch.") in device)
    return next(named, torch.float32)
