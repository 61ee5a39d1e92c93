"""What the example programs of TRL 1.12 import beside the trainer: options of data and models for the command line."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import Any

import torch
from peft import LoraConfig, PeftConfig
from transformers import BitsAndBytesConfig

from rlhf_studio.trl.program.options import fields_of

SIMPLE_CHAT_TEMPLATE = (
    "{% for message in messages %}{{message['role'].capitalize() + ': ' + message['content'] + '\n\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""A chat template for models that have none."""


_Script: Any = make_dataclass("_Script", fields_of("script"))
_Model: Any = make_dataclass("_Model", [*fields_of("model"), *fields_of("older", "torch_dtype", "trust_remote_code")])


@dataclass
class ScriptArguments(_Script):
    """Which data a program reads."""


@dataclass
class ModelConfig(_Model):
    """Which model a program loads, and how. Raises ValueError for 8 bit and 4 bit together."""

    def __post_init__(self) -> None:
        if self.load_in_8bit and self.load_in_4bit:
            raise ValueError("ModelConfig: load_in_8bit and load_in_4bit are both given; give one of them")
        if self.trust_remote_code:
            raise ValueError("ModelConfig: trust_remote_code is not offered; models whose code is in transformers can be trained")
        modules: Any = self.lora_target_modules
        if modules is not None and len(modules) == 1 and not modules[0].isidentifier():  # all-linear, or a pattern of whole names
            self.lora_target_modules: Any = modules[0]


def get_peft_config(model_args: ModelConfig) -> PeftConfig | None:
    """The adapters that the options ask for; None without ``use_peft``."""
    if not model_args.use_peft:
        return None
    return LoraConfig(
        task_type=model_args.lora_task_type,
        r=model_args.lora_r,
        target_modules=model_args.lora_target_modules,
        target_parameters=model_args.lora_target_parameters,
        lora_alpha=model_args.lora_alpha,
        lora_dropout=model_args.lora_dropout,
        bias="none",
        use_rslora=model_args.use_rslora,
        use_dora=model_args.use_dora,
        modules_to_save=model_args.lora_modules_to_save,
    )


def get_quantization_config(model_args: ModelConfig) -> BitsAndBytesConfig | None:
    """How the base is quantized; None where it is not."""
    if model_args.load_in_4bit:
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_compute_dtype=model_args.torch_dtype or model_args.dtype,
            bnb_4bit_quant_type=model_args.bnb_4bit_quant_type,
            bnb_4bit_use_double_quant=model_args.use_bnb_nested_quant,
            bnb_4bit_quant_storage=model_args.bnb_4bit_quant_storage,
        )
    return BitsAndBytesConfig(load_in_8bit=True) if model_args.load_in_8bit else None


def get_kbit_device_map() -> dict[str, int] | None:
    """All of a quantized model on the first GPU; None without one."""
    return {"": 0} if torch.cuda.is_available() else None
