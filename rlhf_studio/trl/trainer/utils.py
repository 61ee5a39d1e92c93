"""What programs import from ``trl.trainer.utils``."""

from __future__ import annotations

from rlhf_studio.trl.program.script import SIMPLE_CHAT_TEMPLATE, get_kbit_device_map, get_peft_config, get_quantization_config

__all__ = ["SIMPLE_CHAT_TEMPLATE", "get_kbit_device_map", "get_peft_config", "get_quantization_config"]
