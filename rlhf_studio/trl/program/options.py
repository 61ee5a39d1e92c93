"""TRL's options as fields of dataclasses, with the names and defaults of table.yaml."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from rlhf_studio.trl.table import options

COUNTS = """
forward_batch_size world_size backward_batch_size global_backward_batch_size global_batch_size dataset_num_proc total_episodes stop_token_id
num_total_batches micro_batch_size local_batch_size batch_size local_mini_batch_size mini_batch_size
"""
KINDS: dict[str, Any] = {
    **dict.fromkeys(COUNTS.split(), int),
    **dict.fromkeys(("max_grad_norm", "score_clip", "missing_eos_penalty", "logging_steps"), float),
    **dict.fromkeys(("optimize_cuda_cache", "is_encoder_decoder", "is_peft_model", "bf16"), bool),
    **dict.fromkeys(("lora_target_modules", "lora_target_parameters", "lora_modules_to_save"), list[str]),
    "stop_token": Literal["eos"],
    "kl_estimator": Literal["k1", "k3"],
    "dtype": Literal["auto", "bfloat16", "float16", "float32"],
    "bnb_4bit_quant_type": Literal["fp4", "nf4"],
}
"""What an option is, where its default does not tell. One whose default is None and that is not named here is a text."""


def fields_of(section: str, *names: str) -> list[tuple[str, Any, Any]]:
    """The options of a section of the table, or those of ``names``, as :func:`dataclasses.make_dataclass` takes them."""
    return [_field(option.name, option.default) for option in options(section) if not names or option.name in names]


def _field(name: str, default: Any) -> tuple[str, Any, Any]:
    if isinstance(default, dict):
        return name, dict[str, Any], field(default_factory=dict)
    kind = KINDS.get(name, str if default is None else type(default))
    return name, kind | None if default is None else kind, field(default=default)
