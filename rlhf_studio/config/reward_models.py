"""Reward components that ask sequence-classification models."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import model_validator

from rlhf_studio.config.base import setting
from rlhf_studio.config.reward_base import (
    APPEND_EOS,
    BATCH_SIZE,
    CHAT_TEMPLATE,
    DTYPE,
    LABEL,
    MAX_TOKENS,
    OUTPUT,
    READS,
    REVISION,
    Component,
    reads_the_chat_it_writes,
)


class RewardModelReward(Component):
    """A sequence-classification model reads prompt and response and gives one number."""

    kind: Literal["reward_model"] = "reward_model"
    model: str = setting(
        "bundled/world-reward", "Reward model",
        "A sequence-classification model: a folder, a Hugging Face hub id, or bundled/world-reward. It uses its own tokenizer.",
        level="basic", min_length=1, max_length=4096,
    )  # fmt: skip
    revision: str = REVISION
    label: str = LABEL
    output: Literal["logit", "probability"] = OUTPUT
    reads: Literal["both", "response"] = READS
    chat_template: Literal["policy", "own"] = CHAT_TEMPLATE
    dtype: Literal["auto", "float32", "bfloat16"] = DTYPE
    batch_size: int = BATCH_SIZE
    max_tokens: int = MAX_TOKENS
    append_eos: bool = APPEND_EOS

    _fits_together = model_validator(mode="after")(reads_the_chat_it_writes)


class EnsembleReward(Component):
    """Several reward models read the same text; their scores become one, which is harder to please by a flaw of one model."""

    kind: Literal["ensemble"] = "ensemble"
    models: str = setting(
        "", "Reward models",
        "At least two sequence-classification models, folders or hub ids, separated by commas or line breaks.",
        level="basic", max_length=20_000,
    )  # fmt: skip
    combine: Literal["mean", "minimum", "mean_minus_std"] = setting(
        "mean", "Combine by",
        "mean; minimum, the worst of all; or mean_minus_std, so that texts on which the models disagree earn less.",
        level="basic",
    )  # fmt: skip
    std_weight: float = setting(
        1.0, "Disagreement weight", "With mean_minus_std: how many standard deviations over the models are taken off the mean.",
        ge=0, le=100,
    )  # fmt: skip
    member_curves: bool = setting(True, "Curve per model", "Also record each model's own mean score, as a curve beside the combined one.")
    revision: str = REVISION
    label: str = LABEL
    output: Literal["logit", "probability"] = OUTPUT
    reads: Literal["both", "response"] = READS
    chat_template: Literal["policy", "own"] = CHAT_TEMPLATE
    dtype: Literal["auto", "float32", "bfloat16"] = DTYPE
    batch_size: int = BATCH_SIZE
    max_tokens: int = MAX_TOKENS
    append_eos: bool = APPEND_EOS

    _fits_together = model_validator(mode="after")(reads_the_chat_it_writes)

    def model_names(self) -> list[str]:
        """The models in their order."""
        return [name.strip() for name in re.split(r"[,\n]", self.models) if name.strip()]
