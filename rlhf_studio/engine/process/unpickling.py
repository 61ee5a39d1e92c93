"""The helper that reads pickled weights, started by ``inputs/models/pickles.py``: the only place where torch opens a pickle.

With ``weights_only=True`` torch's own reader builds tensors and plain containers and refuses every other name, before it is looked up:
nothing in the file is called. The process has no secrets in its environment, and its memory is limited.
"""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rlhf_studio.child_process.memory import leave_memory
from rlhf_studio.inputs.helper import answer, read_task
from rlhf_studio.language import S_

ROOM = 4  # memory allowed, in sizes of the file: the file, its tensors, and the tensors again while they are written
SPARE_BYTES = 2**29


class NotWeights(ValueError):
    """The file holds something else than named tensors; the text goes on after the file's name."""


def main() -> None:
    """Answer with one message per file, or with what is wrong."""
    jobs = read_task()["jobs"]
    warnings.simplefilter("ignore")  # about the pickle's protocol
    leave_memory(ROOM * max(os.path.getsize(job["source"]) for job in jobs) + SPARE_BYTES)
    for job in jobs:
        try:
            tensors = read_pickle(Path(job["source"]))
            save_file(tensors, job["target"], metadata={"format": "pt"})
        except NotWeights as error:
            answer({"name": job["name"], "problem": str(error)})
            return
        except (MemoryError, RuntimeError) as error:
            if not _is_memory(error):
                raise
            answer({"name": job["name"], "problem": S_("needs far more memory than a file of its size should")})
            return
        answer({"name": job["name"], "tensors": len(tensors)})


def read_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, each with memory of its own. Raises :class:`NotWeights`."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # a damaged or hostile file can make the reader raise anything
        if _is_memory(error):
            raise
        raise NotWeights(_refusal(str(error))) from None
    if not isinstance(content, dict) or not content:
        raise NotWeights("does not hold tensors by name")
    return {name: _plain(name, tensor) for name, tensor in content.items()}


def _plain(name: Any, tensor: Any) -> Tensor:
    """The tensor, contiguous and apart from all others: safetensors keeps no shared memory."""
    if not isinstance(name, str) or not isinstance(tensor, Tensor):
        raise NotWeights(f"holds {type(tensor).__name__} {str(name)[:80]!r} beside tensors; save the model's state_dict alone")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise NotWeights(f"holds {name[:80]} as a sparse or quantized tensor, which safetensors has no place for")
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _refusal(text: str) -> str:
    if match := re.search(r"(?:GLOBAL|[Gg]lobal:?) ([\w.]+)", text):
        return S_(f"is refused: it asks for {match[1][:80]}, which is not needed for weights; nothing in it was run")
    return S_("is damaged, or not a file of weights that torch wrote")


def _is_memory(error: Exception) -> bool:
    """Whether memory ran out: torch says so in a RuntimeError."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


if __name__ == "__main__":
    main()
