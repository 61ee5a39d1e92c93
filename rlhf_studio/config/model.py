"""The models that learn: policy, LoRA adapters."""

from __future__ import annotations

from typing import Literal

from rlhf_studio.config.base import Section, setting


def short_name(model: str) -> str:
    """The last part of a path or hub id."""
    return model.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1] or model


class TrainedModelConfig(Section):
    """Which model learns, and in which precision."""

    policy: str = setting(
        "bundled/world-policy",
        "Policy model",
        "The causal language model that is trained: a folder with config.json and safetensors weights, a Hugging Face hub id, "
        "or bundled/world-policy. A LoRA adapter (a folder or hub id with adapter_config.json) is merged into its base first.",
        level="basic",
        min_length=1,
        names="model",
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
    quantization: Literal["none", "8bit", "4bit"] = setting(
        "none",
        "Quantized base",
        "Keep the frozen base weights in 8 or 4 bits (bitsandbytes), so that a larger model fits. Needs LoRA and a CUDA GPU.",
    )
    gradient_checkpointing: bool = setting(
        False,
        "Gradient checkpointing",
        "Compute each layer a second time in the backward pass instead of keeping its intermediate results: less memory, slower updates.",
    )
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = setting(
        "auto",
        "Attention",
        "How attention is computed; all give the same result up to rounding. auto lets transformers choose. flash_attention_2 needs "
        "the flash-attn package, a CUDA GPU and bfloat16.",
    )


class ReferenceModelConfig(TrainedModelConfig):
    """Which model learns, what it is held to, and in which precision."""

    reference: str = setting(
        "", "Reference model",
        "What the policy is held to. Empty: the policy as it starts. Otherwise a folder or hub id of a model with the same "
        "vocabulary, or of a LoRA adapter.",
        names="model", max_length=4096,
    )  # fmt: skip
    reference_revision: str = setting(
        "main", "Reference revision", "Branch, tag or commit to load when the reference is a hub id.", min_length=1, max_length=200
    )


class ModelConfig(ReferenceModelConfig):
    """Which model learns, and in which precision."""

    value_head_init: Literal["zero", "normal"] = setting(
        "zero",
        "Value head start",
        "How the value head starts: zero predicts 0 everywhere; normal draws weights with variance 1 / (hidden size + 1).",
    )


class StartModelConfig(TrainedModelConfig):
    """Which model learns, whether it starts untrained, and in which precision."""

    policy: str = setting(
        "bundled/world-policy",
        "Model",
        "The causal language model that is fine-tuned: a folder with config.json and safetensors weights, a Hugging Face hub id, "
        "or bundled/world-policy. A LoRA adapter (a folder or hub id with adapter_config.json) is merged into its base first.",
        level="basic",
        min_length=1,
        names="model",
        max_length=4096,
    )
    fresh: bool = setting(
        False, "Untrained start",
        "Draw new weights by the seed, in the shape that the model's config.json gives; only its tokenizer is taken over.",
    )  # fmt: skip


class ComparedModelConfig(TrainedModelConfig):
    """Which model policies are compared with, and in which precision all of them are computed."""

    policy: str = setting(
        "bundled/world-policy",
        "Model",
        "The causal language model that answers when no policies are named. With no other reference model, KL and perplexity refer to it: "
        "a folder with config.json and safetensors weights, a Hugging Face hub id, or bundled/world-policy.",
        level="basic",
        min_length=1,
        names="model",
        max_length=4096,
    )


class RewardBaseConfig(TrainedModelConfig):
    """What the reward model starts from, and in which precision it is trained."""

    policy: str = setting(
        "bundled/world-policy",
        "Start from",
        "The language model whose body the reward model takes, usually the fine-tuned policy, or a reward model to train on: a folder, a "
        "Hugging Face hub id, or bundled/world-policy.",
        level="basic",
        min_length=1,
        names="model",
        max_length=4096,
    )
    criteria: str = setting(
        "", "Outputs to sum",
        "For a reward model with several outputs: names and weights, such as helpfulness=1, verbosity=-0.2. Their weighted sum becomes the "
        "one score that is trained on.",
        max_length=2000,
    )  # fmt: skip


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
        32.0, "Alpha", "Scale of the update: the adapter's output is multiplied by alpha / r. Called lora_alpha in peft.",
        level="basic", gt=0, le=4096,
    )  # fmt: skip
    dropout: float = setting(
        0.0, "Dropout",
        "Dropout inside the adapters. Stored with the adapter; PPO itself always runs with dropout off, so that the first ratio is 1. The "
        "other stages train with it.",
        ge=0, lt=1,
    )  # fmt: skip
    target_modules: str = setting(
        "auto", "Target modules",
        "Names of the layers that get an adapter, separated by commas; auto takes every linear layer except the output layer.",
        min_length=1, max_length=2000,
    )  # fmt: skip
    bias: Literal["none", "all", "lora_only"] = setting(
        "none",
        "Trained biases",
        "Which bias vectors of the base learn too: none, all, or those of the adapted layers. With any of them the reference is a copy.",
    )
    use_rslora: bool = setting(False, "Rank-stabilised", "Scale the update by alpha / sqrt(r) instead of alpha / r (rsLoRA).")
    use_dora: bool = setting(
        False, "DoRA", "Also learn the length of each weight column, apart from its direction (DoRA): a little stronger, clearly slower."
    )
    init_lora_weights: Literal["default", "gaussian", "orthogonal", "pissa", "olora"] = setting(
        "default",
        "Adapter start",
        "How the adapters start. default and gaussian: the update starts at 0. orthogonal: the update starts at 0 with both factors "
        "not 0. pissa and olora: the adapter takes the main part of each weight out of the base, so the reference is a copy.",
    )

    @property
    def off_is_start(self) -> bool:
        """Whether the model with its adapters off is the model as it was before training; else the reference must be a copy."""
        return self.bias == "none" and not self.changes_base

    @property
    def changes_base(self) -> bool:
        """Whether starting the adapters changes the base weights."""
        return self.init_lora_weights in ("pissa", "olora")
