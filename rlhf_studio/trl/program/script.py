"""What the example programs of TRL 1.12 import beside the trainer: options of data and models for the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from peft import LoraConfig, PeftConfig
from transformers import BitsAndBytesConfig

SIMPLE_CHAT_TEMPLATE = (
    "{% for message in messages %}{{message['role'].capitalize() + ': ' + message['content'] + '\n\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""A chat template for models that have none."""


@dataclass
class ScriptArguments:
    """Which data a program reads."""

    dataset_name: str | None = None
    dataset_config: str | None = None
    dataset_train_split: str = "train"
    dataset_test_split: str = "test"
    dataset_streaming: bool = False
    ignore_bias_buffers: bool = False


@dataclass
class ModelConfig:
    """Which model a program loads, and how. Raises ValueError for 8 bit and 4 bit together."""

    model_name_or_path: str | None = None
    model_revision: str = "main"
    dtype: str | None = field(default="float32", metadata={"choices": ["auto", "bfloat16", "float16", "float32"]})
    torch_dtype: str | None = None
    trust_remote_code: bool = False
    attn_implementation: str | None = None
    use_peft: bool = False
    lora_r: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.05
    lora_target_modules: list[str] | None = None
    lora_target_parameters: list[str] | None = None
    lora_modules_to_save: list[str] | None = None
    lora_task_type: str = "CAUSAL_LM"
    use_rslora: bool = False
    use_dora: bool = False
    load_in_8bit: bool = False
    load_in_4bit: bool = False
    bnb_4bit_quant_type: str = field(default="nf4", metadata={"choices": ["fp4", "nf4"]})
    use_bnb_nested_quant: bool = False
    bnb_4bit_quant_storage: str | None = None

    def __post_init__(self) -> None:
        if self.load_in_8bit and self.load_in_4bit:
            raise ValueError("ModelConfig: load_in_8bit and load_in_4bit are both given; give one of them")
        if self.trust_remote_code:
            raise ValueError("ModelConfig: trust_remote_code is not offered; models whose code is in transformers can be trained")
        modules: Any = self.lora_target_modules
        if modules is not None and len(modules) == 1:
            self.lora_target_modules = modules[0]


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
