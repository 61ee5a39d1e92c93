"""What ``from_pretrained`` makes of a model's files: classes, trunk, heads, and the token that a classifier scores.

transformers loads the model onto torch's device ``meta``: it decides all that it would decide, and reads no weight. Nothing is downloaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedModel

from rlhf_studio.engine.models.classifiers import classifier_facts, reads_its_last_token
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.heads import report_held_back
from rlhf_studio.engine.models.load_model import UNUSABLE, adapter_base
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.inputs.models.files import MOST_ADAPTERS, ModelError, ModelFiles, folder_files, read_json
from rlhf_studio.inputs.models.weights import read_tensors, weight_files
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.language import N_, _

CAUSAL, CLASSIFIER, POLICY = "AutoModelForCausalLM", "AutoModelForSequenceClassification", N_("the policy with its value head")
AUTO: dict[str, Any] = {CAUSAL: AutoModelForCausalLM, CLASSIFIER: AutoModelForSequenceClassification}
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_LOADING = {"use_safetensors": True, "trust_remote_code": False, "local_files_only": True, "output_loading_info": True}


@dataclass(frozen=True)
class Loaded:
    """One way to load the files.

    Attributes:
        way: the class that was asked: :data:`CAUSAL`, :data:`CLASSIFIER` or :data:`POLICY`.
        class_name, module, file: what came, the module that defines it, and that module's file.
        trunk, trunk_class: the attribute that ``base_model_prefix`` names, and what is there.
        head: the attribute of the head; ``head_shapes`` the shape of each of its weights, ``head_numbers`` how many numbers that is.
        parameters: of the whole, tied weights counted once.
        drawn: weights that are not in the files, and so are newly initialised.
        left_out: weights in the files that this class has no place for.
        tied: weight -> the other weight that is the same matrix.
        dtype: of the weights as they are loaded.
        scored: of a classifier, which token's output is the score.
        problem: why it cannot be loaded in this way; then all else is empty.
    """

    way: str
    class_name: str = ""
    module: str = ""
    file: str = ""
    trunk: str = ""
    trunk_class: str = ""
    head: str = ""
    head_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    head_numbers: int = 0
    parameters: int = 0
    drawn: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    tied: dict[str, str] = field(default_factory=dict)
    dtype: str = ""
    scored: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Explained:
    """A model's folder, the adapters in front of it (outermost first), and the ways to load it."""

    name: str
    folder: Path
    named: str
    adapters: tuple[str, ...]
    ways: tuple[Loaded, ...]


def explain(name: str, revision: str = "main") -> Explained:
    """What becomes of the model ``name``: a folder, a bundled name, or a hub id that is in the cache of this machine.

    Raises :class:`ModelError` where there are no such files, or no safetensors weights, and ConfigError for an adapter without a base.
    """
    adapters, heads, base = list[str](), set[str](), name
    files = _local(base, revision)
    while "adapter_config.json" in files.sizes and files.folder is not None:
        if len(adapters) == MOST_ADAPTERS:
            raise ModelError(f"{name} is an adapter of an adapter, more than {MOST_ADAPTERS} deep; merge it first")
        if ADAPTER_WEIGHTS not in files.sizes:
            raise ModelError(f"{base} is an adapter without {ADAPTER_WEIGHTS}")
        adapters.append(_adapter(base, files))
        tensors = read_tensors(files, [ADAPTER_WEIGHTS])
        heads |= {tensor.removeprefix("base_model.model.") for tensor in tensors if ".lora_" not in tensor}
        base, revision = adapter_base(base, files.folder, "")
        files = _local(base, revision)
    weight_files(files)
    config, folder = read_json(files, "config.json"), files.folder or Path()
    with report_held_back():
        causal, classifier = (_loaded(way, folder) for way in AUTO)
    ways = [_described(CAUSAL, causal, heads), _described(CLASSIFIER, classifier, heads), _policy(causal)]
    return Explained(name, folder, str((config.get("architectures") or ["?"])[0])[:100], tuple(adapters), tuple(ways))


def _local(name: str, revision: str) -> ModelFiles:
    path = Path(resolve(name))
    if not path.is_dir():
        try:
            path = Path(snapshot_download(str(path), revision=revision, local_files_only=True))
        except (HFValidationError, LocalEntryNotFoundError, ValueError, OSError):
            raise ModelError(f"{name} is no folder, and not in the hub's cache on this machine; nothing is downloaded here") from None
    return folder_files(name, path)


def _adapter(name: str, files: ModelFiles) -> str:
    settings = read_json(files, "adapter_config.json")
    known = [f"{key} {settings[key]}" for key in ("r", "lora_alpha", "task_type") if settings.get(key)]
    return f"{name}: {', '.join([str(settings.get('peft_type')), *known])}"


def _loaded(way: str, folder: Path) -> tuple[Any, dict[str, Any]] | str:
    """The model without its numbers, with transformers' own report; or why there is none."""
    try:
        model, info = AUTO[way].from_pretrained(folder, device_map="meta", **_LOADING)
    except UNUSABLE as error:
        said = " ".join(str(error).split())
        return _("transformers has no such class for this kind of model") if "Unrecognized configuration class" in said else said[:300]
    return model.eval(), info


def _described(way: str, loaded: tuple[Any, dict[str, Any]] | str, brought: set[str]) -> Loaded:
    if isinstance(loaded, str):
        return Loaded(way, problem=loaded)
    model, info = loaded
    outputs = model.get_output_embeddings() if way == CAUSAL else None
    if outputs is not None:
        head = next(name for name, module in model.named_modules() if module is outputs)
        shapes = {f"{head}.{name}": tuple(weight.shape) for name, weight in outputs.named_parameters()}
    else:
        shapes = {name: tuple(shape) for name, shape in classifier_facts(model)["head"].items()}
        head = next(iter(shapes), "").partition(".")[0]
    return Loaded(
        way,
        **_of_class(model),
        trunk=model.base_model_prefix,
        trunk_class=type(model.base_model).__name__,
        head=head,
        head_shapes=shapes,
        head_numbers=sum(torch.Size(shape).numel() for shape in shapes.values()),
        parameters=sum(weight.numel() for weight in model.parameters()),
        drawn=tuple(sorted({*info["missing_keys"], *(str(entry[0]) for entry in info["mismatched_keys"])} - brought)),
        left_out=tuple(sorted(info["unexpected_keys"])),
        tied=dict(model.all_tied_weights_keys),
        dtype=str(model.dtype).removeprefix("torch."),
        scored=scored_token(model) if way == CLASSIFIER else "",
    )


def _policy(loaded: tuple[Any, dict[str, Any]] | str) -> Loaded:
    """What PPO trains here where the critic is a head on the policy's trunk, the default."""
    if isinstance(loaded, str):
        return Loaded(POLICY, problem=loaded)
    model: PreTrainedModel = loaded[0]
    policy = Policy(model, make_value_head(int(model.get_output_embeddings().weight.shape[1]), "zero", 0))
    head: Any = policy.value_head
    shapes = {f"value_head.{name}": tuple(weight.shape) for name, weight in head.named_parameters()}
    return Loaded(
        POLICY,
        **_of_class(policy),
        trunk=f"model.{model.base_model_prefix}",
        trunk_class=type(model.base_model).__name__,
        head="value_head",
        head_shapes=shapes,
        head_numbers=sum(weight.numel() for weight in head.parameters()),
        parameters=sum(weight.numel() for weight in policy.parameters()),
        drawn=tuple(shapes),
        dtype=_("{dtype}, the head {head}").format(dtype=_name_of(model.dtype), head=_name_of(head.weight.dtype)),
    )


def _of_class(model: nn.Module) -> dict[str, Any]:
    kind = type(model)
    return {"class_name": kind.__name__, "module": kind.__module__, "file": str(inspect.getsourcefile(kind))}


def scored_token(model: Any) -> str:
    """Which token's output a sequence classifier of transformers returns, by the source of its own ``forward``; and which is taken here."""
    forward = type(model).forward
    text_config = model.config.get_text_config()
    pad, ends = text_config.pad_token_id, text_config.eos_token_id
    if "last_non_pad_token" in inspect.getsource(forward):
        if pad is None:
            rule = _("the last place of a row. config.json has no pad_token_id, so transformers refuses more than one row at a time")
        elif pad in (ends if isinstance(ends, list) else [ends]):
            rule = _(
                "the last token whose id is not {pad} (pad_token_id of config.json), on whichever side the padding stands. That is the end "
                "token too, so a real end token is passed over"
            ).format(pad=pad)
        else:
            rule = _("the last token whose id is not {pad} (pad_token_id of config.json), on whichever side the padding stands").format(
                pad=pad
            )
    else:
        rule = _("what {name} takes, mostly the first token; it is no rule about padding").format(name=forward.__qualname__)
    own = _("the last token of each text, known from its length, whatever fills the padding")
    return _("{rule}. In PPO here: {here}.").format(rule=rule, here=own if reads_its_last_token(model) else _("the same"))


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def lines_of(explained: Explained) -> Iterator[str]:
    """What was found, for a terminal."""
    yield _("{name}: config.json names {classes}").format(name=explained.name, classes=explained.named)
    for adapter in explained.adapters:
        yield _("adapter {adapter}").format(adapter=adapter)
    for way in explained.ways:
        yield from ("", _(way.way))
        if way.problem:
            yield _("  not loaded    {problem}").format(problem=way.problem)
            continue
        shapes = ", ".join(f"{name} {' x '.join(f'{size:,}' for size in shape)}" for name, shape in way.head_shapes.items())
        inside = "policy" if way.way == POLICY else "model"
        yield _("  class         {name}, of {module}").format(name=way.class_name, module=way.module)
        yield _("  file          {file}").format(file=way.file)
        yield _("  trunk         {place}, a {kind}").format(place=f"{inside}.{way.trunk}", kind=way.trunk_class)
        yield _("  head          {place}: {shapes}; {numbers:,} numbers").format(
            place=f"{inside}.{way.head}", shapes=shapes, numbers=way.head_numbers
        )
        yield _("  parameters    {parameters:,}, {dtype}").format(parameters=way.parameters, dtype=way.dtype)
        yield _("  newly drawn   {names}").format(names=", ".join(way.drawn) or _("nothing"))
        yield from (
            _("  tied          {one} is the same matrix as {other}").format(one=one, other=other) for one, other in way.tied.items()
        )
        if way.left_out:
            more = _(" and {more} more").format(more=len(way.left_out) - 5) if len(way.left_out) > 5 else ""
            yield _("  left out      {names}").format(names=", ".join(way.left_out[:5]) + more)
        if way.scored:
            yield _("  scored        {scored}").format(scored=way.scored)
