"""An adapter of any kind that peft can merge becomes a whole model, in a helper (``engine/process/merge_adapter.py``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.helper import HelperError, ask_helper
from rlhf_studio.inputs.models.adapters import adapter_base, kind_of_adapter, require_kind
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import Hub, ModelError, ModelFiles, read_json
from rlhf_studio.inputs.models.tokenizer_files import TOKENIZER_FILES
from rlhf_studio.language import S_

MODULE = "rlhf_studio.engine.process.merge_adapter"
SECONDS = 3600.0
OF_AN_ADAPTER = ("adapter_config.json", "adapter_model.safetensors", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", *TOKENIZER_FILES)  # fmt: skip


def require_mergeable(files: ModelFiles, hub: Hub | None) -> tuple[str, str]:
    """Name and revision of the adapter's base, a usable language model. Raises :class:`ModelError` where they cannot be merged."""
    settings = read_json(files, "adapter_config.json")
    require_kind(files, settings)
    if settings.get("task_type") not in ("CAUSAL_LM", None):
        task = str(settings.get("task_type"))[:40]
        raise ModelError(f"{files.name} is {kind_of_adapter(files)} for {task}; only adapters of language models are merged here")
    base, revision = adapter_base(files, settings)
    try:
        check_causal_lm(base, revision, hub)
    except ModelError as error:
        raise ModelError(f"{files.name} is {kind_of_adapter(files)}, and its base cannot be used: {error}") from None
    return base, revision


def write_merged(files: ModelFiles, base: tuple[str, str], dtype: str, folder: Path, report: Callable[[str], None]) -> tuple[str, ...]:
    """Write the adapter's base (name, revision) with the adapter merged in into ``folder``, in numbers of ``dtype``.

    A sentence about what was made. Raises :class:`ModelError` where they do not fit, or the merged model is not the same function.
    """
    own = [files.fetch(name) for name in OF_AN_ADAPTER if name in files.sizes]
    task = {
        "adapter": str(own[0].parent.absolute()),
        "name": files.name,
        "base": base[0],
        "revision": base[1],
        "target": str(folder),
        "dtype": dtype,
    }
    ask_engine(MODULE, task, files.name, report)
    return (S_(f"{files.name} is {kind_of_adapter(files)}; it was merged into its base, {base[0]}. The result is a whole model."),)


def ask_engine(module: str, task: dict[str, Any], name: str, report: Callable[[str], None]) -> None:
    """Let a helper of the engine do a ``task`` for the model ``name``. Raises :class:`ModelError` with what it finds wrong."""
    answers = ask_helper(module, task, memory_bytes=0, seconds=SECONDS, network=True)
    try:
        for message in answers:
            if "problem" in message:
                raise ModelError(message["problem"])
            report(message["progress"])
    except HelperError as error:
        raise ModelError(f"{name} cannot be converted: {error}") from None
    finally:
        answers.close()
