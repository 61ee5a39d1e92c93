"""Adapters by what ``adapter_config.json`` says: which kind one is, its base, and whether it can become a part of the base's weights."""

from __future__ import annotations

from typing import Any

from rlhf_studio.inputs.models.files import ModelError, ModelFiles, moved_base, read_json
from rlhf_studio.inputs.models.pickles import convert_command
from rlhf_studio.inputs.models.safetensors_header import TensorInfo
from rlhf_studio.inputs.models.size_checks import EMBEDDINGS
from rlhf_studio.language import S_

LEARNED_VECTORS = S_("it puts learned vectors before every text and leaves the weights as they are")
NEVER_MERGED = {
    **dict.fromkeys(("PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "CARTRIDGE"), LEARNED_VECTORS),
    "ADAPTION_PROMPT": S_("it adds attention to learned vectors and leaves the weights as they are"),
    "XLORA": S_("it mixes several adapters anew for every token"),
    "POLY": S_("it mixes several adapters by task"),
}
"""Kinds of peft adapters that no weights of the base can stand for -> why."""


def kind_of_adapter(files: ModelFiles) -> str:
    """``a LoRA adapter``, ``an IA3 adapter``: how a sentence names it."""
    kind = read_json(files, "adapter_config.json").get("peft_type")
    name = "LoRA" if kind == "LORA" else str(kind)[:40]
    return f"{'an' if name[:1] in 'AEIOU' else 'a'} {name} adapter"


def require_lora(files: ModelFiles, settings: dict[str, Any]) -> None:
    """Raises :class:`ModelError` with the way out for an adapter that is not LoRA."""
    require_kind(files, settings)
    if settings.get("peft_type") != "LORA":
        language_model = settings.get("task_type") in (None, "CAUSAL_LM")
        way_out = convert_command(files.name, files.revision) if language_model else S_("peft's merge_and_unload does it")
        raise ModelError(f"{files.name} is {kind_of_adapter(files)}, not a LoRA adapter; merge it into its base model first: {way_out}")


def require_kind(files: ModelFiles, settings: dict[str, Any]) -> None:
    """Raises :class:`ModelError` for a kind that cannot be merged into its base."""
    if reason := NEVER_MERGED.get(str(settings.get("peft_type"))):
        way_out = S_("start from its base model, or from a LoRA adapter")
        raise ModelError(f"{files.name} is {kind_of_adapter(files)}, which cannot be merged into its base: {reason}; {way_out}")
    if settings.get("layer_replication"):
        reason = S_("it uses layers of its base several times (layer_replication), for which a model folder has no place")
        raise ModelError(f"{files.name} is {kind_of_adapter(files)}, which cannot be merged into its base: {reason}")


def require_same_rows(files: ModelFiles, tensors: dict[str, TensorInfo], vocab_size: int | None) -> None:
    """Raises :class:`ModelError` with the way out for an adapter that was trained with more tokens than its base has."""
    rows = embedding_rows(tensors)
    if vocab_size is not None and rows > vocab_size:
        command = convert_command(files.name, files.revision)
        raise ModelError(f"{files.name} has {rows:,} tokens, and its base knows {vocab_size:,}; merge them into one model first: {command}")


def embedding_rows(tensors: dict[str, TensorInfo]) -> int:
    """Rows of the embedding that an adapter brings along; 0 where it brings none."""
    return max((tensor.shape[0] for name, tensor in tensors.items() if EMBEDDINGS.search(name) and len(tensor.shape) == 2), default=0)


def adapter_base(files: ModelFiles, settings: dict[str, Any]) -> tuple[str, str]:
    """Name and revision of the base that an adapter belongs to. Raises :class:`ModelError` when it does not say."""
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision") or "main"
    if not (isinstance(base, str) and base and isinstance(revision, str)):
        raise ModelError(f"adapter_config.json of {files.name} does not name its base model")
    return base if files.folder is None else moved_base(base, files.folder), revision
