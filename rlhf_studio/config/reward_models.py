"""Reward components that ask sequence-classification models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import model_validator

from rlhf_studio.config.base import setting
from rlhf_studio.config.model import short_name
from rlhf_studio.config.permissions import Permissions
from rlhf_studio.config.reward_base import Component, ComponentProblem, Group
from rlhf_studio.language import S_
from rlhf_studio.regular import read_regular


class ClassifierReward(Component):
    """How a reward model reads a text and which of its outputs is the reward: what all kinds with reward models share.

    A kind puts this class first among its base classes and its own settings into one behind it: pydantic collects settings from the
    last base class to the first, so that the kind's own settings come before these in form, YAML and docs.
    """

    group: ClassVar[Group] = "Models"
    models_setting: ClassVar[str]
    """The setting that names the model or models."""

    revision: str = setting(
        "main", "Hub revision", "Branch, tag or commit to load when the model is a hub id.", min_length=1, max_length=200
    )
    label: str = setting(
        "", "Label", "Which of the model's labels is the reward, by name or number. Leave empty for a model with a single output.",
        level="basic", max_length=200, number=True,
    )  # fmt: skip
    output: Literal["logit", "probability"] = setting(
        "logit", "Output", "Take the label's raw logit, or its probability after softmax (sigmoid for a single output)."
    )
    reads: Literal["both", "response"] = setting(
        "both", "Reads", "both: prompt and response as one text. response: the response alone, as for a sentiment classifier that should "
        "not be swayed by the prompt.",
    )  # fmt: skip
    chat_template: Literal["auto", "policy", "own"] = setting(
        "auto", "Chat form",
        "policy: the model reads prompt and response as the policy does. own: prompt and response are written as a chat in the form that "
        "the reward model's own tokenizer defines; a prompt that is no chat is what the user says. auto: as the model was trained, where "
        "that is on record (models trained here); for others as policy.",
    )  # fmt: skip
    dtype: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", "Number format", "Format of the model's weights and products. auto follows the run's; bfloat16 takes half the memory."
    )
    batch_size: int = setting(64, "Batch size", "Texts scored in one forward pass.", unit="texts", ge=1, le=4096)
    max_tokens: int = setting(
        512,
        "Longest text",
        "Longer texts lose their beginning before scoring, the prompt first. They are counted before the start and at each step.",
        unit="tokens",
        ge=8,
        le=32768,
    )
    append_eos: bool = setting(
        False,
        "Append end token",
        "Add the reward model's end-of-text token after a finished response, as some reward models were trained.",
    )

    @model_validator(mode="after")
    def _chat_form_fits_what_is_read(self) -> ClassifierReward:
        if self.chat_template == "own" and self.reads == "response":
            raise ValueError("chat_template: own writes prompt and response as one chat; use policy, or set reads to both")
        return self


class _OneModel(Component):
    kind: Literal["reward_model"] = "reward_model"
    model: str = setting(
        "bundled/world-reward", "Reward model",
        "A sequence-classification model: a folder, a Hugging Face hub id, or bundled/world-reward. It uses its own tokenizer.",
        level="basic", min_length=1, names="model", max_length=4096,
    )  # fmt: skip


class RewardModelReward(ClassifierReward, _OneModel):
    """A sequence-classification model reads prompt and response and gives one number."""

    title = "Reward model"
    models_setting = "model"

    def model_names(self) -> list[str]:
        """The one model."""
        return [self.model]

    def described(self) -> str:
        """The model's short name."""
        return short_name(self.model)


class _SeveralModels(Component):
    kind: Literal["ensemble"] = "ensemble"
    models: str = setting(
        "", "Reward models",
        "At least two sequence-classification models, folders or hub ids, separated by commas or line breaks; or the folder of an ensemble "
        "that was trained here.",
        level="basic", names="models", max_length=20_000,
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


def ensemble_members(folder: str) -> list[str]:
    """The folders of the members that ``ensemble.json`` in ``folder`` names; none when there is no such file, or it is damaged."""
    try:
        named = json.loads(read_regular(Path(folder) / "ensemble.json"))["members"]
        return [str(Path(folder) / member) for member in named]
    except (OSError, ValueError, KeyError, TypeError):
        return []


class EnsembleReward(ClassifierReward, _SeveralModels):
    """Several reward models read the same text; their scores become one, which is harder to please by a flaw of one model."""

    title = "Ensemble"
    models_setting = "models"
    used_when = {"std_weight": ("combine", "mean_minus_std")}
    one_per_line = ("models",)

    def model_names(self) -> list[str]:
        """The models in their order; the folder of an ensemble stands for its members."""
        names = [name.strip() for name in re.split(r"[,\n]", self.models) if name.strip()]
        return [member for name in names for member in ensemble_members(name) or [name]]

    def described(self) -> str:
        """How many models there are."""
        return S_(f"{len(self.model_names())} models together")

    def problems(self, permissions: Permissions) -> Iterator[ComponentProblem]:
        """Fewer than two models, or one of them twice."""
        names = self.model_names()
        if len(names) < 2:
            message = S_("an ensemble needs at least two models, separated by commas or line breaks; for one use a reward model component")
            yield ComponentProblem("models", message)
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            yield ComponentProblem("models", S_(f"{doubles[0]} is named twice; each model counts once"))
