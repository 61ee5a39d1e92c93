"""The supervised stages around PPO: how fine-tuning, a reward model and DPO are trained."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from rlhf_studio.config.base import Section, setting


class TrainingConfig(Section):
    """What every supervised stage needs to know about its optimisation."""

    epochs: int = setting(1, "Epochs", "Passes over the training examples.", level="basic", unit="passes", ge=1, le=1000)
    max_steps: int = setting(
        0, "Most steps", "Stop after so many steps, however many examples are left; 0: when all passes are done.", unit="steps", ge=0,
        le=10_000_000,
    )  # fmt: skip
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
    eval_every: int = setting(
        50, "Evaluate every", "Steps between two measurements on the held-out examples; there is one at the beginning and one at the end.",
        unit="steps", ge=1, le=1_000_000,
    )  # fmt: skip

    @property
    def micro_batch(self) -> int:
        """Examples per forward pass at most."""
        return self.micro_batch_size or self.batch_size


class SFTConfig(TrainingConfig):
    """Settings of supervised fine-tuning."""

    loss_on: Literal["response", "text"] = setting(
        "response", "Loss on",
        "response learns only to answer; of a chat that is every answer of the assistant. text also learns to write the prompts.",
        level="basic",
    )  # fmt: skip


class RewardTrainingConfig(TrainingConfig):
    """Settings of reward-model training. ``batch_size`` counts pairs."""

    append_eos: bool = setting(
        False, "Append end token", "Add the end-of-text token to every text; the reward model must then be used the same way."
    )
    head: Literal["linear", "hidden"] = setting(
        "linear", "Score head",
        "What makes a score of the last token's hidden state: one linear layer, or a hidden layer before it. Only this program loads a "
        "model with a hidden layer.",
    )  # fmt: skip
    head_dropout: float = setting(0.0, "Head dropout", "Dropout before the score head while it trains.", ge=0, lt=1)
    centering: float = setting(
        0.0, "Centering",
        "Weight of (chosen score + rejected score)² in the loss, which keeps scores near 0; preferences alone do not. TRL recommends 0.01.",
        ge=0, le=10,
    )  # fmt: skip
    label_smoothing: float = setting(
        0.0, "Label smoothing", "Share of the pairs that are taken to be written down the wrong way round.", ge=0, lt=0.5
    )
    normalise: int = setting(
        512, "Normalise on",
        "After training, scores are shifted and scaled to mean 0 and variance 1 over so many responses: those of the held-out examples "
        "first, then of the training examples where there are too few; 0 leaves them as they are.",
        unit="responses", ge=0, le=1_000_000,
    )  # fmt: skip

    @model_validator(mode="after")
    def _a_variance_needs_two(self) -> Self:
        if self.normalise == 1:
            raise ValueError("normalise: a single score has no variance; use at least 2, or 0 to leave scores as they are")
        return self


class DPOConfig(TrainingConfig):
    """Settings of direct preference optimisation (Rafailov et al. 2023). ``batch_size`` counts pairs."""

    beta: float = setting(
        0.1, "β", "How strongly the policy is held to its reference: larger stays nearer to it.", level="basic", gt=0, le=100
    )
    label_smoothing: float = setting(
        0.0, "Label smoothing", "Share of the pairs that are taken to be written down the wrong way round (conservative DPO).", ge=0, lt=0.5
    )
