"""Which layers LoRA adapts, as the setting names them."""

from __future__ import annotations

from rlhf_studio.config import LoraConfig


def target_names(lora: LoraConfig) -> list[str]:
    """The layers to adapt, as written: ``["auto"]`` or names."""
    return [name.strip() for name in lora.target_modules.split(",") if name.strip()]


def is_target(layer: str, names: list[str]) -> bool:
    """Whether one of ``names`` is the layer's name or the end of it, as peft matches them."""
    return any(layer == name or layer.endswith("." + name) for name in names)
