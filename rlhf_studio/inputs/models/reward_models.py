"""What the files of a reward model tell without loading it: its class, its score head, its pad token, and the token that is scored.

Beside the weights, reward models that are trained here have a small file, ``reward_model.json``: see :class:`RewardFile`, and
``measured.json`` with the scores of held-out pairs. A folder of an ensemble has ``ensemble.json``, which names the folders of its members.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.models.facts import ENCODER_TYPES, ModelFacts, check_reward_model
from rlhf_studio.inputs.models.files import ModelError, ModelFiles, find_model, read_json
from rlhf_studio.inputs.trained_text import TrainedText, read_trained_text
from rlhf_studio.language import S_

REWARD_FILE = "reward_model.json"
ENSEMBLE_FILE = "ensemble.json"
MEASURED_FILE = "measured.json"
MOST_BYTES = 20_000_000  # of such a file
ACTIVATIONS = ("gelu", "tanh")
HEADS = ("score.", "classifier.", "qa_outputs.", "sequence_summary.", "logits_proj.")
"""How the names of a score head's weights begin in transformers' sequence classifiers."""
ADAPTED = "base_model.model."  # how all names in a peft adapter begin


@dataclass(frozen=True)
class Normalisation:
    """How the scores were shifted and scaled after training: score = (raw score − mean) / std.

    Attributes:
        responses: how many responses mean and standard deviation were computed on.
        source: which ones, for people: "held-out examples".
    """

    responses: int
    mean: float
    std: float
    source: str = ""


@dataclass(frozen=True)
class RewardFile:
    """What ``reward_model.json`` says.

    Attributes:
        head: ``linear``, or ``hidden`` for one hidden layer before the linear one.
        activation: of the hidden layer, one of :data:`ACTIVATIONS`; empty without one.
        append_eos: whether the model was trained on texts that end with the end token.
        normalised: None where the scores are as training left them.
        criteria: weight of each of the outputs that the score is the sum of; empty for one output.
        trained_on: the form of the texts that it was trained on; None in files of earlier versions, which do not say it.
    """

    head: str = "linear"
    activation: str = ""
    append_eos: bool = False
    normalised: Normalisation | None = None
    criteria: dict[str, float] = field(default_factory=dict)
    trained_on: TrainedText | None = None

    def text(self) -> str:
        """As it stands in the file."""
        return json.dumps({"format": 1, **asdict(self)}, indent=1) + "\n"


def read_reward_file(folder: Path) -> RewardFile | None:
    """The file in ``folder``; None where there is none. Raises :class:`ModelError` when it is damaged."""
    path = folder / REWARD_FILE
    if not path.is_file():
        return None
    return _reward_file(_object(path, str(folder)), str(folder))


def read_measured(folder: Path) -> dict[str, Any] | None:
    """The last measurement of the model in ``folder``, as :mod:`rlhf_studio.analysis.reward_model` reads it; None where there is none.

    Raises :class:`ModelError` when the file is damaged.
    """
    path = folder / MEASURED_FILE
    if not path.is_file():
        return None
    if path.stat().st_size > MOST_BYTES:
        raise ModelError(f"{MEASURED_FILE} of {folder} is larger than any measurement")
    return _object(path, str(folder))


def _object(path: Path, name: str) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path.name} of {name} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{path.name} of {name} is not valid JSON") from None
    if not isinstance(data, dict):
        raise ModelError(f"{path.name} of {name} is not a JSON object")
    return data


def _reward_file(data: dict[str, Any], name: str) -> RewardFile:
    def wrong(key: str, needed: str) -> ModelError:
        return ModelError(f"{REWARD_FILE} of {name} says {key} {json.dumps(data.get(key))[:60]}; it must be {needed}")

    head, activation = data.get("head", "linear"), data.get("activation", "")
    if data.get("format", 1) != 1:
        raise wrong("format", "1; a newer version of this program wrote it")
    if head not in ("linear", "hidden"):
        raise wrong("head", "linear or hidden")
    if activation not in (ACTIVATIONS if head == "hidden" else ("",)):
        raise wrong("activation", "gelu or tanh for a hidden layer, and empty without one")
    if not isinstance(data.get("append_eos", False), bool):
        raise wrong("append_eos", "true or false")
    criteria, normalised = data.get("criteria") or {}, data.get("normalised")
    if not (isinstance(criteria, dict) and all(_is_number(weight) for weight in criteria.values())):
        raise wrong("criteria", "names with their weights")
    try:
        stored = None if normalised is None else Normalisation(**normalised)
    except TypeError:
        raise wrong("normalised", "null, or the numbers responses, mean and std") from None
    if stored and not (_is_number(stored.mean) and _is_number(stored.std) and stored.std > 0):
        raise wrong("normalised", "null, or the numbers responses, mean and std above 0")
    try:
        trained_on = read_trained_text(data.get("trained_on"))
    except ValueError:
        raise wrong("trained_on", "null, or the form of its texts with all its members") from None
    return RewardFile(head, activation, data.get("append_eos", False), stored, dict(criteria), trained_on)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def is_reward_model(folder: Path) -> bool:
    """Whether the folder holds a sequence classifier, whole or as a LoRA adapter. A folder that cannot be read holds none."""
    adapter = folder / "adapter_config.json"
    try:
        if adapter.is_file():
            return bool(_object(adapter, str(folder)).get("task_type") == "SEQ_CLS")
        named = _object(folder / "config.json", str(folder)).get("architectures")
    except ModelError:  # loading it says what is wrong
        return False
    return isinstance(named, list) and bool(named) and str(named[0]).endswith("ForSequenceClassification")


# --- what is shown of a model ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RewardModelDescription:
    """What the files tell of one reward model, for people.

    Attributes:
        name: as it was asked for.
        architecture: its class in transformers.
        files: its weight files with their sizes in bytes.
        parameters: number of weights; None when they are only on the hub.
        head: ``linear`` or ``hidden``.
        head_weights: names and shapes of the head's weights; empty when they are only on the hub.
        activation: of a hidden layer.
        labels: names of the outputs.
        pad_id, pad_token: as the model's config.json and its tokenizer name it; None where there is none.
        end_id, end_token: the same of the end token.
        scored: which token's state is scored, as a sentence.
        reads: ``left`` when a token sees only those before it, ``both`` for an encoder.
        longest: most tokens it has positions for; None without a limit.
        notes: what people should know, a sentence each.
    """

    name: str
    architecture: str
    files: dict[str, int]
    parameters: int | None
    head: str
    head_weights: dict[str, tuple[int, ...]]
    activation: str
    labels: list[str]
    pad_id: int | None
    pad_token: str | None
    end_id: int | None
    end_token: str | None
    scored: str
    reads: str
    longest: int | None
    base: str = ""
    append_eos: bool = False
    normalised: Normalisation | None = None
    criteria: dict[str, float] = field(default_factory=dict)
    trained_on: TrainedText | None = None
    notes: list[str] = field(default_factory=list)


def describe_reward_model(name: str, label: str = "") -> RewardModelDescription:
    """What the files of the reward model ``name`` (a folder, a hub id or bundled/world-reward) tell. torch is not loaded.

    Raises :class:`ModelError` when the engine could not use it, or when it is an ensemble.
    """
    files = find_model(name, "main")
    facts = check_reward_model(name, label=label)
    config = read_json(files, "config.json")
    text_config = {**config, **(config.get("text_config") or {})}
    tokens = _special_tokens(facts)
    saved = read_reward_file(files.folder) if files.folder is not None else None
    saved = saved or RewardFile()
    encoder = facts.model_type in ENCODER_TYPES or facts.model_type == "distilbert"
    pad = text_config.get("pad_token_id")
    pad_id = pad if type(pad) is int else None
    end_id = tokens["end"][0]
    return RewardModelDescription(
        name=name,
        architecture=facts.architecture,
        files={file: size for file, size in sorted(files.sizes.items()) if file.endswith(".safetensors")},
        parameters=facts.parameters,
        head=saved.head,
        head_weights=_head_weights(facts, files),
        activation=saved.activation,
        labels=facts.labels,
        pad_id=pad_id,
        pad_token=tokens["pad"][1],
        end_id=end_id,
        end_token=tokens["end"][1],
        scored=_scored(encoder, saved),
        reads="both" if encoder else "left",
        longest=facts.max_positions,
        base=facts.base,
        append_eos=saved.append_eos,
        normalised=saved.normalised,
        criteria=saved.criteria,
        trained_on=saved.trained_on,
        notes=_notes(saved, encoder, pad_id, tokens),
    )


def _head_weights(facts: ModelFacts, files: ModelFiles) -> dict[str, tuple[int, ...]]:
    tensors = facts.tensors
    if facts.base and files.folder is not None:  # an adapter: the head is among its own weights
        from rlhf_studio.inputs.models.weights import read_tensors

        tensors = read_tensors(files, ["adapter_model.safetensors"])
    named = {tensor.removeprefix(ADAPTED): info.shape for tensor, info in tensors.items()}
    return {tensor: shape for tensor, shape in named.items() if tensor.startswith(HEADS)}


def _special_tokens(facts: ModelFacts) -> dict[str, tuple[int | None, str | None]]:
    """(id, text) of the tokenizer's pad and end token."""
    tokens: dict[str, tuple[int | None, str | None]] = {"pad": (None, None), "end": (None, None)}
    if facts.tokenizer_files is None:
        return tokens
    settings = read_json(facts.tokenizer_files, "tokenizer_config.json")
    ids: dict[str, int] = {}
    if facts.tokenizer is not None:
        from tokenizers import Tokenizer

        ids = Tokenizer.from_file(str(facts.tokenizer)).get_vocab(with_added_tokens=True)  # check_reward_model has read it already
    for name, key in (("pad", "pad_token"), ("end", "eos_token")):
        value = settings.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str) and text:
            tokens[name] = (ids.get(text), text)
    return tokens


def _scored(encoder: bool, saved: RewardFile) -> str:
    if encoder:
        return S_("The first token's state is scored; it has read the whole text.")
    end = S_(", the end token that is put behind a finished response") if saved.append_eos else ""
    return S_(f"The last token's state is scored{end}. Padding is never scored: where a text ends is known from its length.")


def _notes(saved: RewardFile, encoder: bool, pad_id: int | None, tokens: dict[str, tuple[int | None, str | None]]) -> list[str]:
    notes = []
    if saved.head == "hidden":
        notes.append(S_("The score head has a hidden layer: only this program loads it; plain transformers refuses the file."))
    if saved.trained_on is not None and saved.trained_on.chat_template:
        end = S_(f", which closes an answer with {saved.trained_on.end!r}") if saved.trained_on.end else ""
        notes.append(S_(f"It was trained on whole chats in the form of its own template{end}."))
    if pad_id is not None and pad_id == tokens["end"][0]:
        notes.append(
            S_(
                "config.json names the end token as pad token. Plain transformers then passes over real end tokens; here the last token of "
                "a text is scored, whichever it is."
            )
        )
    if tokens["pad"][1] is None and not encoder:
        notes.append(S_("The tokenizer has no pad token. Nothing is missing here; plain transformers scores one text at a time."))
    return notes
