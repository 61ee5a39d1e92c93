"""TRL's PPO, which its authors removed: old programs run here when their import lines say ``rlhf_studio.trl`` for ``trl``.

    from rlhf_studio.trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer

- :mod:`.program`: these names, on this program's engine. Loaded when one of them is asked for: the rest needs no torch.
- :mod:`.convert`: settings that were written for TRL (YAML, JSON, arguments) as settings of this program.
- :mod:`.table`: TRL's options and names (table.yaml), from which tools/from_trl_page.py makes docs/from-trl.md.
"""

from __future__ import annotations

import importlib
from typing import Any

NAMES = {
    "PPOConfig": "config",
    "PPOv2Config": "config",
    "PPOTrainer": "trainer",
    "PPOv2Trainer": "trainer",
    "AutoModelForCausalLMWithValueHead": "models",
    "AutoModelForSeq2SeqLMWithValueHead": "models",
    "PreTrainedModelWrapper": "models",
    "create_reference_model": "models",
    "LengthSampler": "helpers",
    "respond_to_batch": "helpers",
    "set_seed": "helpers",
    "ScriptArguments": "script",
    "ModelConfig": "script",
    "get_peft_config": "script",
    "get_quantization_config": "script",
    "get_kbit_device_map": "script",
    "SIMPLE_CHAT_TEMPLATE": "script",
}
"""What an old program imports, and the file of :mod:`rlhf_studio.trl.program` that has it."""

__all__ = sorted(NAMES)


def __getattr__(name: str) -> Any:
    if name == "core":  # ``import rlhf_studio.trl as trl`` and then ``trl.core.LengthSampler``
        return importlib.import_module("rlhf_studio.trl.core")
    if name not in NAMES:
        raise AttributeError(f"rlhf_studio.trl has no {name}: it has what TRL's PPO programs import ({', '.join(__all__)})")
    return getattr(importlib.import_module(f"rlhf_studio.trl.program.{NAMES[name]}"), name)
