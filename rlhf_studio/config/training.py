"""The two supervised stages before PPO: fine-tuning, and the training of a reward model."""

from __future__ import annotations

from typing import Literal

from rlhf_studio.config.base import Section, setting


class TrainingConfig(Section):
    """What every supervised stage needs to know about its optimisation."""

    epochs: int = setting(1, "Epochs", "Passes over the training examples.", level="basic", unit="passes", ge=1, le=1000)
    batch_size: int = setting(32, "Batch size", "Examples per optimizer step.", level="basic", unit="examples", ge=1, le=65536)
    micro_batch_size: int = setting(
        0, "Micro-batch size", "Examples per forward pass; smaller needs less memory and changes nothing else. 0 takes the batch size.",
        unit="examples", ge=0, le=65536,
    )  # fmt: skip
    learning_rate: float = setting(1e-4, "Learning rate", "Highest step size of AdamW.", level="basic", gt=0, le=1)
    lr_schedule: Literal["constant", "linear", "cosine"] = setting(
        "linear", "Schedule", "How the learning rate changes after warm-up: constant, or falling to 0 linearly or as a cosine."
    )
    warmup_steps: int = setting(0, "Warm-up", "First steps, over which the learning rate rises from 0.", unit="steps", ge=0, le=1_000_000)
    weight_decay: float = setting(
        0.0,
        "Weight decay",
        "Share of the learning rate by which each optimizer step shrinks the matrices (AdamW); vectors are never shrunk.",
        ge=0,
        le=1,
    )
    adam_beta2: float = setting(
        0.999, "Adam beta 2", "Memory of AdamW's squared gradients; short trainings from scratch want less.", gt=0, lt=1
    )
    max_grad_norm: float = setting(
        1.0, "Gradient clip", "A gradient with a larger norm is scaled down to this one; 0 does not clip.", ge=0, le=1e6
    )
    max_tokens: int = setting(512, "Longest example", "Longer examples lose their end.", unit="tokens", ge=2, le=32768)
    seed: int = setting(0, "Seed", "Fixes the order of the examples and dropout.", level="basic", ge=0, le=2**31 - 1)


class SFTConfig(TrainingConfig):
    """Settings of supervised fine-tuning."""

    loss_on: Literal["response", "text"] = setting(
        "response", "Loss on", "response learns only to answer; text also learns to write the prompts.", level="basic"
    )


class RewardTrainingConfig(TrainingConfig):
    """Settings of reward-model training. ``batch_size`` counts pairs."""

    append_eos: bool = setting(
        False, "Append end token", "Add the end-of-text token to every text; the reward model must then be used the same way."
    )
