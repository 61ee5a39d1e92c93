"""Loading models and tokenizers: safetensors only, no remote code, progress by name while a download runs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import nn
from tqdm.auto import tqdm
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from rlhf_studio.config_io import ConfigError, Problem
from rlhf_studio.engine.fused import fuse_activations
from rlhf_studio.inputs.bundled import resolve

Report = Callable[[str, float | None], None]
"""Called with what is going on, by name, and its progress from 0 to 1 (None when unknown)."""

REPORT_SECONDS = 0.5  # between two reports of a download; each is written to disk
NETWORK_ERROR = HfHubHTTPError.__mro__[1]  # of the HTTP library that the installed hub client uses
UNUSABLE = (OSError, ValueError, LookupError, TypeError, RuntimeError, ImportError, SafetensorError, StrictDataclassError)
"""What transformers raises for files that are missing, damaged, of an unknown kind, or do not fit together."""


@dataclass(frozen=True)
class LoadedModel:
    """A causal LM with its tokenizer, and what a person should know about them."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    notes: list[str]


def fetch(name: str, revision: str, report: Report, field: str) -> Path:
    """The local folder of a model: bundled, on disk, or downloaded from the hub.

    Raises :class:`ConfigError` (naming ``field``) when there is nothing to load.
    """
    resolved = resolve(name)
    if os.path.isdir(resolved):
        return Path(resolved)
    try:
        return Path(
            snapshot_download(
                resolved,
                revision=revision,
                allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"],
                tqdm_class=_progress_class(name, report),
            )
        )
    except HFValidationError as error:
        raise ConfigError([Problem(field, f"cannot load {name}: there is no such folder, and it cannot be a hub id")]) from error
    except (NETWORK_ERROR, LocalEntryNotFoundError, ValueError, OSError) as error:
        raise _cannot_load(name, field, error) from error


def _cannot_load(name: str, field: str, error: Exception) -> ConfigError:
    cause = " ".join(str(error).split())
    if not cause or isinstance(error, LookupError):  # a bare key says nothing
        cause = f"{type(error).__name__} {cause}".strip()
    return ConfigError([Problem(field, f"cannot load {name}: {cause if len(cause) <= 300 else cause[:297] + '...'}")])


def _progress_class(name: str, report: Report) -> type[tqdm]:
    """A progress bar that reports megabytes to the run instead of drawing."""

    class Progress(tqdm):
        def __init__(self, *args: Any, **kwargs: Any):
            kwargs["disable"] = False
            super().__init__(*args, **{**kwargs, "file": open(os.devnull, "w")})  # noqa: SIM115 - tqdm closes with the process
            self._reported = -REPORT_SECONDS

        def update(self, n: float | None = 1) -> bool | None:
            shown = super().update(n)
            if self.unit == "B" and self.total and monotonic() - self._reported >= REPORT_SECONDS:
                self._reported = monotonic()
                report(f"Downloading {name}: {self.n / 1e6:.0f} of {self.total / 1e6:.0f} MB", self.n / self.total)
            return shown

    return Progress


def load_causal_lm(name: str, revision: str, dtype: torch.dtype, report: Report, field: str = "model.policy") -> LoadedModel:
    """Load a causal language model and its tokenizer, in evaluation mode.

    Raises :class:`ConfigError` naming ``field`` when the folder holds no usable model.
    """
    folder = fetch(name, revision, report, field)
    report(f"Loading {name}", None)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except UNUSABLE as error:
        raise _cannot_load(name, field, error) from error
    if missing := sorted(info["missing_keys"]):
        raise ConfigError([Problem(field, f"{name} has no weights for {missing[0]}; it is not a trained language model")])
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        message = f"{name} is a {model.config.model_type} model without a key-value cache, which sampling needs; use another model"
        raise ConfigError([Problem(field, message)])
    fuse_activations(model)
    return LoadedModel(model.eval(), tokenizer, _tokenizer_notes(tokenizer))


def _tokenizer_notes(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    if tokenizer.pad_token_id is None:
        return ["The tokenizer has no pad token. Padding comes from lengths here, so nothing else is needed."]
    if tokenizer.pad_token_id == tokenizer.eos_token_id:
        return ["The tokenizer's pad token equals its end token. Masks come from lengths here, so real end tokens are kept and trained on."]
    return []


@dataclass(frozen=True)
class LoadedRewardModel:
    """A sequence-classification model with its own tokenizer.

    Attributes:
        label: index of the output that is the reward.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    label: int


def load_reward_model(name: str, revision: str, label: str, dtype: torch.dtype, report: Report, field: str) -> LoadedRewardModel:
    """Load a reward model. Raises :class:`ConfigError` naming the field when the model or the label cannot be used."""
    folder = fetch(name, revision, report, f"{field}.model")
    report(f"Loading the reward model {name}", None)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model, info = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except UNUSABLE as error:
        raise _cannot_load(name, f"{field}.model", error) from error
    if missing := sorted(info["missing_keys"]):
        raise ConfigError([Problem(f"{field}.model", f"{name} has no weights for {missing[0]}; it is not a trained reward model")])
    _restore_head_bias(model, folder)
    fuse_activations(model)
    return LoadedRewardModel(model.eval().requires_grad_(False), tokenizer, _label_index(model, label, f"{field}.label"))


def _label_index(model: PreTrainedModel, label: str, field: str) -> int:
    names = {int(index): str(text) for index, text in model.config.id2label.items()}
    if not label and len(names) == 1:
        return 0
    numbers = {text: index for index, text in names.items()}
    by_name_or_number = {str(index): index for index in names} | numbers  # a name that looks like a number is a name
    if label in by_name_or_number:
        return by_name_or_number[label]
    wanted = f"there is no label {label!r}" if label else "this model has several outputs, so a label must be chosen"
    raise ConfigError([Problem(field, f"{wanted}; its labels are {', '.join(names.values())}")])


def _restore_head_bias(model: PreTrainedModel, folder: Path) -> None:
    """Decoder classifiers have no bias in their head, so a saved ``score.bias`` is dropped in loading: put it back."""
    head = getattr(model, "score", None)
    if not isinstance(head, nn.Linear) or head.bias is not None:
        return
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            names = weights.keys()
            if "score.bias" in names:
                head.bias = nn.Parameter(weights.get_tensor("score.bias").to(head.weight.dtype), requires_grad=False)
