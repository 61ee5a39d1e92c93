"""The helper that merges an adapter of any kind into its base, started by ``inputs/models/merged_adapter.py``.

peft merges; one forward pass in float32 shows whether the merged model is still the same function (``engine/models/merging.py``).
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers

from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.models.adapters import merge_adapter
from rlhf_studio.engine.models.load_model import load_causal_lm, load_tokenizer
from rlhf_studio.engine.process.plain_copy import SHARD
from rlhf_studio.inputs.helper import answer, read_task
from rlhf_studio.inputs.models.adapters import embedding_rows
from rlhf_studio.inputs.models.safetensors_header import read_header
from rlhf_studio.language import S_


def main() -> None:
    """Answer with lines about the progress, or with what is wrong."""
    task = read_task()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    try:
        merge(Path(task["adapter"]), task["name"], task["base"], task["revision"], Path(task["target"]), task["dtype"])
    except ConfigError as error:
        answer({"problem": "; ".join(problem.message for problem in error.problems)})
    except (AttributeError, NotImplementedError) as error:  # of kinds that have no way of being merged
        reason = " ".join(str(error).split())[:200]
        answer({"problem": S_(f"peft cannot merge the adapter {task['name']} into its base: {reason or type(error).__name__}")})


def merge(adapter: Path, name: str, base: str, revision: str, target: Path, dtype: str) -> None:
    """Write ``base`` with the adapter in the folder ``adapter`` merged in. Raises :class:`ConfigError` where they do not fit."""
    loaded = load_causal_lm(base, revision, torch.float32, lambda text, share: answer({"progress": text}), "model")
    answer({"progress": S_(f"merging {name}")})
    embedding: Any = loaded.model.get_input_embeddings()
    rows, known = embedding_rows(read_header(adapter / "adapter_model.safetensors")), len(embedding.weight)
    if rows > known:  # tokens that were added for the adapter's training: it brings all their vectors
        loaded.model.resize_token_embeddings(rows, mean_resizing=False)
    model = merge_adapter(loaded.model, adapter, name, "model")
    tokenizer = load_tokenizer(adapter) if (adapter / "tokenizer_config.json").is_file() else loaded.tokenizer
    model.to(getattr(torch, dtype))
    model.config.dtype = getattr(torch, dtype)
    model.save_pretrained(target, max_shard_size=SHARD)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    main()
