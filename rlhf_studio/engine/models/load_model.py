"""Loading policies and reward models with their tokenizers: safetensors only, no remote code, progress reports during downloads."""

from __future__ import annotations

import copy
import inspect
import io
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, StrictDataclassError
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import nn
from tqdm.auto import tqdm
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TokenizersBackend,
)

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.fused import fuse_activations
from rlhf_studio.engine.models.adapters import is_adapter, merge_adapter
from rlhf_studio.engine.models.heads import HIDDEN_PARTS, HiddenHead, head_tensors, hidden_head, report_held_back
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.checks.machine import machine_problems
from rlhf_studio.inputs.models.files import MOST_ADAPTERS, moved_base, network_error
from rlhf_studio.inputs.models.pickles import convert_command
from rlhf_studio.inputs.models.reward_models import RewardFile, is_reward_model, read_reward_file
from rlhf_studio.inputs.trained import DamagedError, require_intact, resolve
from rlhf_studio.inputs.trained_text import TrainedText
from rlhf_studio.language import S_

REPORT_SECONDS = 0.5  # between two progress reports of a download, each of which is written to disk
NETWORK_ERROR = network_error()  # of the HTTP library that the installed hub client uses
PROBE = "The quick brown fox, 12 times:\n  don't stop!"
UNUSABLE = (OSError, ValueError, LookupError, TypeError, RuntimeError, ImportError, SafetensorError, StrictDataclassError)
"""What transformers raises for files that are missing, damaged, of an unknown kind, or do not fit together."""


@dataclass(frozen=True)
class LoadedModel:
    """A causal LM with its tokenizer.

    Attributes:
        notes: sentences for people about what was loaded.
        merged: names of the LoRA adapters that were merged into the model.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    notes: list[str]
    merged: list[str] = field(default_factory=list)


def fetch(name: str, revision: str, report: OnProgress, field: str, *, weights: bool = True) -> Path:
    """The local folder of the model ``name``: bundled, on disk, or downloaded from the hub; perhaps without its ``weights``.

    Raises :class:`ConfigError` naming ``field`` when there is nothing to load, or when a model that a run has trained is damaged.
    """
    folder = _folder(name, revision, report, field, weights)
    try:
        if weights:
            require_intact(folder, read=True)
    except DamagedError as error:
        raise ConfigError([Problem(field, f"cannot load {name}: {error}")]) from error
    if weights and (folder / "config.json").is_file() and not any(folder.glob("*.safetensors")):
        way_out = S_(f"if it has a pytorch_model.bin, convert it first: {convert_command(name, revision)}")
        raise ConfigError([Problem(field, f"cannot load {name}: it has no safetensors weights; {way_out}")])
    return folder


def _folder(name: str, revision: str, report: OnProgress, field: str, weights: bool) -> Path:
    resolved = resolve(name)
    if os.path.isdir(resolved):
        return Path(resolved)
    try:
        return Path(
            snapshot_download(
                resolved,
                revision=revision,
                allow_patterns=["*.json", *(["*.safetensors"] if weights else []), "*.txt", "*.model", "*.jinja"],
                tqdm_class=_progress_class(name, report),
            )
        )
    except HFValidationError as error:
        raise ConfigError([Problem(field, f"cannot load {name}: there is no such folder, and it cannot be a hub id")]) from error
    except (NETWORK_ERROR, LocalEntryNotFoundError, ValueError, OSError) as error:
        raise _cannot_load(name, field, error) from error


def _cannot_load(name: str, field: str, error: Exception) -> ConfigError:
    cause = " ".join(str(error).split())
    if not cause or isinstance(error, LookupError):  # the message of a LookupError is only the key
        cause = f"{type(error).__name__} {cause}".strip()
    return ConfigError([Problem(field, f"cannot load {name}: {cause if len(cause) <= 300 else cause[:297] + '...'}")])


def _progress_class(name: str, report: OnProgress) -> type[tqdm[Any]]:
    """A tqdm class that reports megabytes to ``report`` instead of drawing a bar."""

    class Progress(tqdm):  # type: ignore[type-arg] # it cannot be subscripted when the program runs
        def __init__(self, *args: Any, **kwargs: Any):
            kwargs["disable"] = False
            super().__init__(*args, **{**kwargs, "file": io.StringIO()})
            self._reported = -REPORT_SECONDS

        def display(self, *_: Any, **__: Any) -> None:
            return  # nothing is drawn

        def update(self, n: float | None = 1) -> bool | None:
            drawn: bool | None = super().update(n)
            if self.unit == "B" and self.total and monotonic() - self._reported >= REPORT_SECONDS:
                self._reported = monotonic()
                report(f"Downloading {name}: {self.n / 1e6:.0f} of {self.total / 1e6:.0f} MB", self.n / self.total)
            return drawn

    return Progress


def load_options(config: StageConfig, compute: Compute) -> dict[str, Any]:
    """Options of ``from_pretrained`` for policy and reference: the attention implementation, and quantization.

    Raises :class:`ConfigError` for what this machine cannot do.
    """
    if problems := list(machine_problems(config, None if compute.device.type == "cuda" else 0)):
        raise ConfigError(problems)
    settings = config.model
    options: dict[str, Any] = {} if settings.attention == "auto" else {"attn_implementation": settings.attention}
    if settings.quantization != "none":
        four = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": compute.dtype}
        quantization = {"load_in_4bit": True, **four} if settings.quantization == "4bit" else {"load_in_8bit": True}
        options |= {"quantization_config": BitsAndBytesConfig(**quantization), "device_map": {"": compute.device}}
    return options


def load_causal_lm(
    name: str,
    revision: str,
    dtype: torch.dtype,
    report: OnProgress,
    field: str = "model.policy",
    options: dict[str, Any] | None = None,
    tokenizer_folder: Path | None = None,
) -> LoadedModel:
    """Load a causal language model and its tokenizer, in evaluation mode. A LoRA adapter is merged into its base.

    ``options`` are passed on to ``from_pretrained`` (see :func:`load_options`). ``tokenizer_folder``: where the tokenizer is of a model
    that has none of its own, as the base that a run keeps for its adapters.
    Raises :class:`ConfigError` naming ``field`` when the folder holds no usable model.
    """
    folder = fetch(name, revision, report, field)
    adapters: list[tuple[str, Path]] = []
    base_name = name
    while is_adapter(folder):
        if len(adapters) == MOST_ADAPTERS:
            raise ConfigError([Problem(field, f"{name} is an adapter of an adapter, more than {MOST_ADAPTERS} deep; merge it first")])
        adapters.append((base_name, folder))
        base_name, revision = adapter_base(base_name, folder, field)
        folder = fetch(base_name, revision, report, field)
    if adapters and "quantization_config" in (options or {}):
        message = f"{name} is a LoRA adapter, which cannot be merged into a quantized base; merge it into a model first, or use none"
        raise ConfigError([Problem("model.quantization", message)])
    model = _load_full(base_name, folder, dtype, report, field, options or {})
    for adapter, where in reversed(adapters):
        model = merge_adapter(model, where, adapter, field)
    places = [*(where for _, where in adapters), folder]
    with_tokenizer = next((where for where in places if (where / "tokenizer_config.json").is_file()), tokenizer_folder or folder)
    try:
        tokenizer = load_tokenizer(with_tokenizer)
    except UNUSABLE as error:
        raise _cannot_load(name, field, error) from error
    fuse_activations(model)
    notes = _tokenizer_notes(tokenizer)
    if adapters:
        notes.append(S_(f"{name} is a LoRA adapter: it was merged into its base, {base_name}, before anything else."))
    return LoadedModel(model.eval(), tokenizer, notes, [adapter for adapter, _ in adapters])


def _load_full(name: str, folder: Path, dtype: torch.dtype, report: OnProgress, field: str, options: dict[str, Any]) -> PreTrainedModel:
    report(f"Loading {name}", None)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True, **options
        )
    except UNUSABLE as error:
        about_attention = "attn_implementation" in options and any(word in str(error) for word in ("ttention", "attn"))
        raise _cannot_load(name, "model.attention" if about_attention else field, error) from error
    model: PreTrainedModel = loaded[0]
    if missing := sorted(loaded[1]["missing_keys"]):
        raise ConfigError([Problem(field, f"{name} has no weights for {missing[0]}; it is not a trained language model")])
    if problem := _misfit(model, loaded[1]["unexpected_keys"]):
        raise ConfigError([Problem(field, f"{name} {problem}")])
    if "past_key_values" not in inspect.signature(model.forward).parameters:
        message = f"{name} is a {model.config.model_type} model without a key-value cache, which sampling needs; use another model"
        raise ConfigError([Problem(field, message)])
    return model


def _misfit(model: PreTrainedModel, left_out: Iterable[str]) -> str:
    """Where transformers goes on with other numbers than the files hold, or other programs would: what to change; empty for none."""
    weights = model.state_dict()
    if biases := sorted(key for key in left_out if key.endswith(".bias") and f"{key.removesuffix('bias')}weight" in weights):
        return S_(f"stores {biases[0]}, but by its config.json that layer has no bias; correct config.json (attention_bias, for example)")
    if own := sorted(model.get_expanded_tied_weights_keys(all_submodels=True).keys() - model.all_tied_weights_keys.keys()):
        return S_(
            f"stores {own[0]} with other numbers than the embedding, but by its config.json (tie_word_embeddings) both are one matrix; "
            "programs disagree on what that means. Write false there to keep both, or take that tensor out of the file"
        )
    return ""


def adapter_base(name: str, folder: Path, field: str) -> tuple[str, str]:
    """Name and revision of an adapter's base model. Raises :class:`ConfigError` when they are not named or the adapter has no weights."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        kind, base, revision = config["peft_type"], config["base_model_name_or_path"], config.get("revision") or "main"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _cannot_load(name, field, error) from error
    if kind != "LORA":
        way_out = S_(f"merge it into its base model first: {convert_command(name)}")
        raise ConfigError([Problem(field, f"{name} is a {str(kind)[:40]} adapter, not a LoRA adapter; {way_out}")])
    if not (isinstance(base, str) and base and isinstance(revision, str)):
        raise ConfigError([Problem(field, f"the adapter {name} does not name its base model")])
    if not (folder / "adapter_model.safetensors").is_file():  # without it peft would load a pickle
        way_out = S_(f"if it has an adapter_model.bin, convert it first: {convert_command(name)}")
        raise ConfigError([Problem(field, f"the adapter {name} has no adapter_model.safetensors; {way_out}")])
    return moved_base(base, folder), revision


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer that tokenizer.json describes.

    For some model types (Qwen 2, for example) transformers uses the type's own tokenizer class, whatever class the folder names, and that
    class replaces parts of tokenizer.json. When a test sentence gives other tokens than tokenizer.json does, the plain class is used.
    """
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    file = folder / "tokenizer.json"
    if type(tokenizer) is not TokenizersBackend and file.is_file():
        expected = Tokenizer.from_file(str(file)).encode(PROBE, add_special_tokens=False).ids
        if tokenizer(PROBE, add_special_tokens=False).input_ids != expected:
            tokenizer = TokenizersBackend.from_pretrained(folder)
    return tokenizer


def _tokenizer_notes(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    if tokenizer.pad_token_id is None:
        return [S_("The tokenizer has no pad token. Padding comes from lengths here, so nothing else is needed.")]
    if tokenizer.pad_token_id == tokenizer.eos_token_id:
        return [
            S_("The tokenizer's pad token equals its end token. Masks come from lengths here, so real end tokens are kept and trained on.")
        ]
    return []


@dataclass(frozen=True)
class LoadedRewardModel:
    """A sequence-classification model with its own tokenizer.

    Attributes:
        label: index of the output that is the score.
        trained_on: the form of the texts that it was trained on, where that is on record.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    label: int
    trained_on: TrainedText | None = None


def check_same_tokens(
    name: str, theirs: LoadedModel | LoadedRewardModel, policy: LoadedModel, field: str, why: str, *, outputs: bool = False
) -> None:
    """Raises :class:`ConfigError` naming ``field`` when the model ``name`` does not have the policy's vocabulary; ``why`` ends the message.

    Every token of the policy must have the same id in the other model; further tokens (an added pad token, for example) are allowed. Its
    embedding must have a row for every id that the policy can sample. With ``outputs`` its output layer must have as many rows as the
    policy's: the sizes of two output layers can differ even with equal tokens, because some rows belong to no token.
    """
    known = theirs.tokenizer.get_vocab()
    other = next((token for token, number in policy.tokenizer.get_vocab().items() if known.get(token) != number), None)
    if other is not None:
        token = repr(other[:40])
        difference = S_(f"no token {token}") if other not in known else S_(f"another id for {token}")
        raise ConfigError([Problem(field, f"{name} has another vocabulary than the policy ({difference}), {why}")])
    layer = "get_output_embeddings" if outputs else "get_input_embeddings"
    ours, rows = (len(getattr(loaded.model, layer)().weight) for loaded in (policy, theirs))
    if rows < ours or (outputs and rows != ours):
        message = f"{name} has another vocabulary than the policy (weights for {rows:,} tokens, not {ours:,}), {why}"
        raise ConfigError([Problem(field, message)])


def load_reward_model(name: str, revision: str, label: str, dtype: torch.dtype, report: OnProgress, field: str) -> LoadedRewardModel:
    """Load a reward model, frozen. Raises :class:`ConfigError` naming the setting below ``field`` that cannot be used."""
    folder = fetch(name, revision, report, f"{field}.model")
    report(f"Loading the reward model {name}", None)
    setting = f"{field}.model"
    try:
        saved = read_reward_file(folder) or RewardFile()
        if is_adapter(folder):
            model, tokenizer = _adapted_classifier(name, folder, saved, dtype, report, setting)
        else:
            tokenizer = load_tokenizer(folder)
            model = _saved_classifier(name, folder, saved, dtype, setting)
    except UNUSABLE as error:
        raise error if isinstance(error, ConfigError) else _cannot_load(name, setting, error) from error
    fuse_activations(model)
    index = _label_index(model, label, f"{field}.label")
    return LoadedRewardModel(model.eval().requires_grad_(False), tokenizer, index, saved.trained_on)


def _saved_classifier(name: str, folder: Path, saved: RewardFile, dtype: torch.dtype, field: str) -> PreTrainedModel:
    hidden = saved.head == "hidden"  # its first matrix does not fit transformers' own head, which is replaced below
    with report_held_back() as report:
        loaded: tuple[PreTrainedModel, dict[str, Any]] = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=hidden
        )
    model, info = loaded
    wrong = sorted({*info["missing_keys"], *(str(entry[0]) for entry in info["mismatched_keys"])} - ({"score.weight"} if hidden else set()))
    own = {f"score.{part}" for part in HIDDEN_PARTS} if hidden else {"score.bias"}  # loaded below, where transformers does not
    if not wrong and set(info["unexpected_keys"]) - own:
        report.tell()
    if wrong:
        raise ConfigError([Problem(field, f"{name} has no weights for {wrong[0]}; it is not a trained reward model")])
    if hidden:
        score: Any = model.score
        model.score = hidden_head(score.in_features, saved.activation, head_tensors(folder), score.weight.dtype, model.device)
    else:
        _restore_head_bias(model, folder)
    return model


def classifier_of(loaded: LoadedModel, name: str, field: str) -> PreTrainedModel:
    """A sequence classifier with one output on the language model's own trunk, which is not copied: use ``loaded`` no more.

    Its head, a linear layer named ``score``, is not drawn yet. Raises :class:`ConfigError` naming ``field`` for a kind of model that
    transformers has no such classifier for.
    """
    causal = loaded.model
    config = copy.deepcopy(causal.config)
    config.num_labels = 1
    unusable = S_(f"{name} is a {config.model_type} model, from which transformers makes no reward model with a layer named score")
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
    except UNUSABLE as error:
        raise ConfigError([Problem(field, f"{unusable}; use another model")]) from error
    trunk, head = model.base_model, getattr(model, "score", None)
    if type(trunk) is not type(causal.base_model) or not isinstance(head, nn.Linear):
        raise ConfigError([Problem(field, f"{unusable}; use another model")])
    setattr(model, model.base_model_prefix, causal.base_model)
    model.score = nn.Linear(head.in_features, 1, bias=head.bias is not None, device=causal.device)
    model.eval()
    return model


def _adapted_classifier(
    name: str, folder: Path, saved: RewardFile, dtype: torch.dtype, report: OnProgress, field: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A reward model that was saved as a LoRA adapter with its head, merged into the language model that it names as its base."""
    if json.loads((folder / "adapter_config.json").read_text(encoding="utf-8")).get("task_type") != "SEQ_CLS":
        raise ConfigError(
            [Problem(field, f"{name} is a LoRA adapter of a language model, not of a reward model; train a reward model first")]
        )
    base, revision = adapter_base(name, folder, field)
    base_folder = fetch(base, revision, report, field)
    if is_reward_model(base_folder):
        model, tokenizer = _saved_classifier(base, base_folder, saved, dtype, field), None
        score: Any = model.score
    else:
        loaded = load_causal_lm(base, revision, dtype, report, field)
        model, tokenizer = classifier_of(loaded, base, field), loaded.tokenizer
        score = model.score
        if saved.head == "hidden":
            model.score = score = HiddenHead(score.in_features, saved.activation, device=loaded.model.device)
        score.to(dtype)
    head = {part.removeprefix("score."): tensor for part, tensor in head_tensors(folder, "base_model.model.").items() if "score." in part}
    if tokenizer is None or (folder / "tokenizer_config.json").is_file():
        tokenizer = load_tokenizer(folder)
    if "bias" in head and score.bias is None:
        score.bias = nn.Parameter(torch.zeros_like(score.weight[:, 0]))
    if head.keys() != score.state_dict().keys():
        raise ConfigError([Problem(field, f"the adapter {name} has no whole score head; it is not a trained reward model")])
    with torch.no_grad():
        score.load_state_dict(head)
    return merge_adapter(model, folder, name, field), tokenizer


def _label_index(model: PreTrainedModel, label: str, field: str) -> int:
    names = {int(index): str(text) for index, text in (model.config.id2label or {}).items()}
    if not label and len(names) == 1:
        return 0
    numbers = {text: index for index, text in names.items()}
    by_name_or_number = {str(index): index for index in names} | numbers  # a label whose name is a number is found by its name
    if label in by_name_or_number:
        return by_name_or_number[label]
    reason = S_(f"there is no label {label!r}") if label else S_("this model has several outputs, so a label must be chosen")
    raise ConfigError([Problem(field, f"{reason}; its labels are {', '.join(names.values())}")])


def _restore_head_bias(model: PreTrainedModel, folder: Path) -> None:
    """Load a saved ``score.bias``: transformers' decoder classifiers have no bias in their head and ignore it."""
    head: Any = model.score if isinstance(getattr(model, "score", None), nn.Linear) else None
    if head is None or head.bias is not None:
        return
    bias = head_tensors(folder).get("bias")
    if bias is not None:
        head.bias = nn.Parameter(bias.to(head.weight.dtype), requires_grad=False)
