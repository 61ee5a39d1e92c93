"""The models that learn: policy, LoRA adapters."""

from __future__ import annotations

from typing import Literal

from rlhf_studio.config.base import Section, setting


class ModelConfig(Section):
    """Which model learns, and in which precision."""

    policy: str = setting(
        "bundled/world-policy",
        "Policy model",
        "The causal language model that PPO trains: a folder with config.json and safetensors weights, a Hugging Face hub id, "
        "or bundled/world-policy.",
        level="basic",
        min_length=1,
        max_length=4096,
    )
    revision: str = setting(
        "main", "Hub revision", "Branch, tag or commit to load when the policy is a hub id.", min_length=1, max_length=200
    )
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto",
        "Precision",
        "Number format of the computation. auto: bfloat16 where the GPU supports it, float32 on a CPU.",
    )
    value_head_init: Literal["zero", "normal"] = setting(
        "zero",
        "Value head start",
        "How the value head starts: zero predicts 0 everywhere; normal draws weights with variance 1 / (hidden size + 1).",
    )


class LoraConfig(Section):
    """Low-rank adapters: train a small addition to each chosen layer instead of all weights."""

    enabled: bool = setting(
        False,
        "Train with LoRA",
        "Train low-rank adapters and keep the base weights frozen. The reference policy is then the same model with adapters off.",
        level="basic",
    )
    r: int = setting(16, "Rank r", "Rank of the low-rank update; higher learns more and costs more memory.", level="basic", ge=1, le=1024)
    alpha: float = setting(
        32.0, "Alpha", "Scale of the update: the adapter's output is multiplied by alpha / r.", level="basic", gt=0, le=4096
    )
    dropout: float = setting(
        0.0, "Dropout",
        "Dropout inside the adapters. Stored with the adapter; PPO itself always runs with dropout off, so that the first ratio is 1.",
        ge=0, lt=1,
    )  # fmt: skip
    target_modules: str = setting(
        "auto", "Target modules",
        "Names of the layers that get an adapter, separated by commas; auto takes every linear layer except the output layer.",
        min_length=1, max_length=2000,
    )  # fmt: skip
