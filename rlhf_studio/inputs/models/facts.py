"""Is this model one that the engine can load? Answered from its small files, without torch and without loading weights."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.families import family_problem, mapping_source
from rlhf_studio.inputs.models.adapters import adapter_base, kind_of_adapter, require_lora, require_same_rows
from rlhf_studio.inputs.models.files import MOST_ADAPTERS, Hub, ModelError, ModelFiles, find_model, read_json
from rlhf_studio.inputs.models.gguf import gguf_files
from rlhf_studio.inputs.models.other_formats import gguf_advice, quantized_before
from rlhf_studio.inputs.models.rotation import rotation_boundary
from rlhf_studio.inputs.models.safetensors_header import TensorInfo
from rlhf_studio.inputs.models.shape import HEADS, ModelShape, read_shape
from rlhf_studio.inputs.models.size_checks import check_against_weights, check_numbers
from rlhf_studio.inputs.models.tokenizer_files import TOKENIZER_FILES, check_vocabulary, has_tokenizer, pad_and_end
from rlhf_studio.inputs.models.weights import pickle_advice, read_tensors, weight_files
from rlhf_studio.language import S_

ENCODER_TYPES = {
    "bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "electra", "camembert", "roformer", "rembert",
    "megatron-bert", "bert-generation", "data2vec-text", "big_bird", "ernie", "xmod", "xlm", "roc_bert",
}  # fmt: skip

DROPS_BY_DEFAULT = {"gpt2", "gpt_bigcode"}

END_LISTS = ("generation_config.json", "config.json")
"""Files that list which tokens end what a model writes."""

WORDS = ("model_type", "hidden_act", "hidden_activation", "activation_function")
"""What config.json says in words, of which tables are asked."""
LONGEST_WORD = 100

COUNTED_FROM_PAD = {"roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert", "data2vec-text", "xmod"}


@dataclass(frozen=True)
class ModelFacts:
    """What the small files tell about a usable model.

    Attributes:
        path: its folder on this machine, or None when it is only on the hub.
        model_type: the kind of model, as config.json names it.
        parameters: number of weights, or None when unknown.
        labels: names of a classifier's outputs, in order.
        has_pad: whether the tokenizer names such a token; None when the files do not say.
        has_end: whether the tokenizer has an end token; None when its files name none and its class may have one of its own.
        end_lists: what ``eos_token_id`` is in generation_config.json and config.json.
        max_positions: longest text in tokens, prompt and response together; None when there is no fixed limit.
        attends_to: tokens to which sparse attention is cut down in a longer text; None where all are attended to.
        tensors: names and shapes of the weights, when they are on this machine.
        tokenizer: the tokenizer.json on this machine, or None.
        tokenizer_files: the files among which the tokenizer's settings and its chat template are.
        download_bytes: what the engine still has to fetch.
        base: the whole model behind a LoRA adapter, which is merged into it; empty for a whole model.
        shape: layers, widths and heads; None when config.json does not tell.
        rotation_boundary: see :func:`rotation.rotation_boundary`.
        attention_dropout: share of attention's weights that is dropped in training mode; 0 for none. PPO never trains in that mode.
        heads: of attention; None when config.json does not tell.
    """

    path: Path | None
    architecture: str
    model_type: str = ""
    parameters: int | None = None
    labels: list[str] = field(default_factory=list)
    has_pad: bool | None = None
    has_end: bool | None = None
    pad_equals_eos: bool = False
    end_lists: tuple[tuple[str, Any], ...] = ()
    vocab_size: int | None = None
    max_positions: int | None = None
    attends_to: int | None = None
    tensors: dict[str, TensorInfo] = field(default_factory=dict, repr=False)
    tokenizer: Path | None = None
    tokenizer_files: ModelFiles | None = field(default=None, repr=False)
    download_bytes: int = 0
    base: str = ""
    shape: ModelShape | None = None
    rotation_boundary: int | None = None
    attention_dropout: float = 0.0
    heads: int | None = None


def check_causal_lm(name: str, revision: str = "main", hub: Hub | None = None) -> ModelFacts:
    """Facts about a causal language model, or about the model that a LoRA adapter makes of its base.

    Raises :class:`ModelError` with one sentence when the engine could not use it.
    """
    return _check(name, revision, hub, "CAUSAL_LM", S_("a causal language model"))


def check_shape(name: str, revision: str = "main", hub: Hub | None = None) -> ModelFacts:
    """Facts about a causal language model whose weights are going to be drawn anew: only config.json and the tokenizer are needed.

    Raises :class:`ModelError` with one sentence when the engine could not use it.
    """
    files = find_model(name, revision, hub)
    try:
        return _facts(files, "CAUSAL_LM", S_("a causal language model"), drawn=True)
    except OSError as error:
        raise ModelError(f"{name} cannot be read: {error.strerror or error}") from None


def check_reward_base(name: str, revision: str = "main", hub: Hub | None = None) -> ModelFacts:
    """Facts about what a reward model starts from: a causal language model, or a reward model that is trained on.

    Raises :class:`ModelError` with one sentence when the engine could use it as neither.
    """
    files = find_model(name, revision, hub)
    adapter = read_json(files, "adapter_config.json") if "adapter_config.json" in files.sizes else {}
    named = read_json(files, "config.json").get("architectures") if "config.json" in files.sizes else None
    classifier = isinstance(named, list) and named and str(named[0]).endswith("ForSequenceClassification")
    if adapter.get("task_type") == "SEQ_CLS" or classifier:
        return check_reward_model(name, revision, "", hub)
    return check_causal_lm(name, revision, hub)


def check_reward_model(name: str, revision: str = "main", label: str = "", hub: Hub | None = None) -> ModelFacts:
    """Facts about a sequence classifier whose ``label`` (name or number) is the reward. Raises :class:`ModelError`."""
    facts = _check(name, revision, hub, "SEQUENCE_CLASSIFICATION", S_("a sequence-classification model"))
    if facts.base:
        return replace(facts, architecture=S_(f"{facts.architecture} as a base, with the adapter's score head"), labels=["LABEL_0"])
    names = ", ".join(label[:60] for label in facts.labels[:20]) + (", ..." if len(facts.labels) > 20 else "")
    if not label and len(facts.labels) != 1:
        raise ModelError(f"{name} has {len(facts.labels)} labels; say which one is the reward: {names}", "label")
    is_number = label.isascii() and label.isdigit() and len(label) < 10 and int(label) < len(facts.labels)
    if label and label not in facts.labels and not is_number:
        raise ModelError(f"{name} has no label {label[:60]!r}; its labels are: {names}", "label")
    return facts


def _check(name: str, revision: str, hub: Hub | None, task: str, expected: str) -> ModelFacts:
    files = find_model(name, revision, hub)
    try:
        if "adapter_config.json" in files.sizes and (task == "CAUSAL_LM" or _adapts_a_classifier(files)):
            return _adapter_facts(files, hub)
        return _facts(files, task, expected)
    except OSError as error:
        raise ModelError(f"{name} cannot be read: {error.strerror or error}") from None


def _facts(files: ModelFiles, task: str, expected: str, *, tokenizer_elsewhere: bool = False, drawn: bool = False) -> ModelFacts:
    _check_kind(files)
    config = read_json(files, "config.json")
    _check_words(files.name, config)
    architecture = _architecture(files.name, config, task, expected)
    check_numbers(files.name, config)
    if not drawn and (quantized := quantized_before(files.name, files.revision, config)):
        raise ModelError(quantized)
    weights = [] if drawn else weight_files(files)
    tensors = read_tensors(files, weights)
    if not tokenizer_elsewhere and not has_tokenizer(files):
        raise ModelError(f"{files.name} has no tokenizer files ({TOKENIZER_FILES[0]} or the like); save the tokenizer into the same folder")
    tokenizer = files.small("tokenizer.json")
    text_config = {**config, **(config.get("text_config") or {})}
    vocab_size = _whole_number(text_config, "vocab_size")
    check_vocabulary(files.name, tokenizer, vocab_size)
    check_against_weights(files.name, text_config, tensors, sum(files.sizes[weight] for weight in weights))
    return ModelFacts(
        path=files.folder,
        architecture=architecture,
        model_type=str(config.get("model_type", "")),
        parameters=sum(tensor.values for tensor in tensors.values()) or None,
        labels=_labels(config),
        **pad_and_end(files),
        end_lists=_end_lists(files, text_config),
        vocab_size=vocab_size,
        max_positions=_smallest(_max_positions(text_config), _attends_to(text_config)),
        attends_to=_attends_to(text_config),
        tensors=tensors,
        tokenizer=tokenizer,
        tokenizer_files=files,
        download_bytes=sum(files.sizes[weight] for weight in weights) if files.folder is None else 0,
        shape=read_shape(text_config),
        rotation_boundary=rotation_boundary(text_config),
        attention_dropout=_attention_dropout(text_config),
        heads=next((heads for key in HEADS if (heads := _whole_number(text_config, key))), None),
    )


def _end_lists(files: ModelFiles, config: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    sampling = read_json(files, "generation_config.json") if "generation_config.json" in files.sizes else {}
    return tuple((name, settings.get("eos_token_id")) for name, settings in zip(END_LISTS, (sampling, config), strict=True))


def _adapter_facts(files: ModelFiles, hub: Hub | None) -> ModelFacts:
    """Facts about the model that an adapter and its base make, with the adapter's own tokenizer where it brings one."""
    chain = [files]
    while "adapter_config.json" in chain[-1].sizes:
        if len(chain) > MOST_ADAPTERS:
            raise ModelError(f"{files.name} is an adapter of an adapter, more than {MOST_ADAPTERS} deep; merge it first")
        base, revision = _adapter_base(chain[-1])
        try:
            chain.append(find_model(base, revision, hub))
        except ModelError as error:
            raise _base_unusable(files, error) from None
    try:
        elsewhere = any(has_tokenizer(link) for link in chain[:-1])
        facts = _facts(chain[-1], "CAUSAL_LM", S_("a causal language model"), tokenizer_elsewhere=elsewhere)
    except ModelError as error:
        raise _base_unusable(files, error) from None
    for link in chain[:-1]:
        require_same_rows(link, read_tensors(link, ["adapter_model.safetensors"]), facts.vocab_size)
    tokenizer = next((link.small("tokenizer.json") for link in chain if "tokenizer.json" in link.sizes), None)
    check_vocabulary(files.name, tokenizer, facts.vocab_size)
    download = sum(link.sizes["adapter_model.safetensors"] for link in chain[:-1] if link.folder is None)
    named = next((link for link in chain if "tokenizer_config.json" in link.sizes), chain[-1])
    facts = replace(facts, path=files.folder, tokenizer=tokenizer, tokenizer_files=named, base=chain[-1].name, **pad_and_end(named))
    return replace(facts, download_bytes=facts.download_bytes + download)


def _base_unusable(files: ModelFiles, error: ModelError) -> ModelError:
    return ModelError(f"{files.name} is a LoRA adapter, and its base cannot be used: {error}")


def _adapter_base(files: ModelFiles) -> tuple[str, str]:
    """Name and revision of the base that a usable LoRA adapter belongs to."""
    settings = read_json(files, "adapter_config.json")
    require_lora(files, settings)
    base, revision = adapter_base(files, settings)
    if "adapter_model.safetensors" not in files.sizes:
        remedy = pickle_advice(files) if "adapter_model.bin" in files.sizes else S_("save it as safetensors")
        raise ModelError(f"{files.name} is a LoRA adapter without adapter_model.safetensors; {remedy}")
    read_tensors(files, ["adapter_model.safetensors"])
    return base, revision


def _adapts_a_classifier(files: ModelFiles) -> bool:
    return read_json(files, "adapter_config.json").get("task_type") == "SEQ_CLS"


def _check_kind(files: ModelFiles) -> None:
    if "config.json" in files.sizes:
        return
    if "ensemble.json" in files.sizes:
        raise ModelError(
            f"{files.name} is an ensemble of reward models; name it in a reward of the kind ensemble, or name one of its members"
        )
    if "adapter_config.json" in files.sizes:  # a policy never comes here: its adapters are followed to their base
        raise ModelError(f"{files.name} is {kind_of_adapter(files)}, not a whole model; merge it into its base model first")
    if gguf_files(files):
        raise ModelError(gguf_advice(files))
    raise ModelError(f"{files.name} holds no model: config.json is missing")


def _check_words(name: str, config: dict[str, Any]) -> None:
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, dict) else {}):
        for word in WORDS:
            value = part.get(word)
            if value is not None and not (isinstance(value, str) and value.isprintable() and len(value) <= LONGEST_WORD):
                raise ModelError(f"config.json of {name} says {word} {ascii(value)[:60]}; it must be a word, such as llama or gelu")


# --- architecture ----------------------------------------------------------------------------------------------------------


def _architecture(name: str, config: dict[str, Any], task: str, expected: str) -> str:
    named = config.get("architectures")
    if not isinstance(named, list) or not named or not isinstance(named[0], str):
        raise ModelError(f"config.json of {name} does not name its architecture; save the model again with save_pretrained")
    architecture = named[0][:100]
    suffixes = ("ForCausalLM", "LMHeadModel") if task == "CAUSAL_LM" else ("ForSequenceClassification",)
    known = supported_architectures(task)
    if task == "CAUSAL_LM" and config.get("is_encoder_decoder"):
        raise ModelError(f"{name} is an encoder-decoder model ({architecture}), not {expected}")
    if task == "CAUSAL_LM" and config.get("model_type") in ENCODER_TYPES and not config.get("is_decoder"):
        raise ModelError(f"{name} is an encoder ({architecture}), not {expected}")
    if architecture in known or (not known and architecture.endswith(suffixes)):
        problem = family_problem(str(config.get("model_type", "")), architecture) if task == "CAUSAL_LM" else None
        if problem:
            raise ModelError(f"{name} {problem}")
        return architecture
    if not architecture.endswith(suffixes):
        raise ModelError(f"{name} is a {architecture}, not {expected}")
    if config.get("auto_map"):
        raise ModelError(f"{name} needs its own Python code ({architecture}), which is never run here; use a model that transformers knows")
    raise ModelError(f"the installed transformers does not know {architecture}; use another model or a newer transformers")


@lru_cache(maxsize=2)
def supported_architectures(task: str) -> frozenset[str]:
    """Class names that the installed transformers can load for ``task``, read from its source so that nothing is imported.

    Empty when transformers is not installed or its table is written in another way; the caller then goes by the class name's ending.
    """
    return frozenset(re.findall(r'"(\w*[A-Z]\w*)"', mapping_source(task)))


# --- labels and sizes --------------------------------------------------------------------------------------------------------


def _labels(config: dict[str, Any]) -> list[str]:
    table = config.get("id2label")
    if isinstance(table, dict) and table:
        return [str(label) for _, label in sorted(table.items(), key=lambda item: (len(str(item[0])), str(item[0])))]
    count = _whole_number(config, "num_labels") or 2  # transformers' own default when config.json says nothing
    return [f"LABEL_{index}" for index in range(min(count, 10_000))]


def _max_positions(config: dict[str, Any]) -> int | None:
    for key in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"):
        if value := _whole_number(config, key):
            return max(value - _first_position(config), 1)
    return None


def _attention_dropout(config: dict[str, Any]) -> float:
    """As transformers reads it: some old kinds of models drop a tenth when config.json says nothing."""
    keys = ("attn_pdrop", "attention_dropout", "attn_dropout", "attention_probs_dropout_prob")
    default = 0.1 if config.get("model_type") in DROPS_BY_DEFAULT else 0.0
    value = next((config[key] for key in keys if key in config), default)
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else 0.0


def _attends_to(config: dict[str, Any]) -> int | None:
    return _smallest(*(_whole_number(config, key) for key in ("index_topk", "keep_window_size")))


def _smallest(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _first_position(config: dict[str, Any]) -> int:
    """The first position: RoBERTa and models like it begin after the id of their padding token, so that 514 positions hold 512 tokens."""
    pad = config.get("pad_token_id", 1)
    return pad + 1 if config.get("model_type") in COUNTED_FROM_PAD and type(pad) is int else 0


def _whole_number(config: dict[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if type(value) is int and value > 0 else None
