"""Weights that were quantized before become plain numbers, in a helper (``engine/process/unpacking.py``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlhf_studio.inputs.models.files import ModelFiles, read_json
from rlhf_studio.inputs.models.merged_adapter import ask_engine
from rlhf_studio.inputs.models.other_formats import UNPACKABLE, kind_of_packing
from rlhf_studio.inputs.models.weights import read_tensors, weight_files
from rlhf_studio.language import S_

MODULE = "rlhf_studio.engine.process.unpacking"


def can_unpack(files: ModelFiles) -> bool:
    """Whether these are weights that :func:`write_unpacked` unpacks."""
    packed = read_json(files, "config.json").get("quantization_config") if "config.json" in files.sizes else None
    return isinstance(packed, dict) and packed.get("quant_method") in UNPACKABLE


def write_unpacked(files: ModelFiles, dtype: str, folder: Path, report: Callable[[str], None]) -> tuple[str, ...]:
    """Write the model into ``folder`` with weights of ``dtype``; a sentence about what is lost. Raises :class:`ModelError`."""
    packed = read_json(files, "config.json")["quantization_config"]
    tensors = read_tensors(files, weight_files(files))
    method = packed["quant_method"]
    task = {"name": files.name, "revision": files.revision, "method": method, "target": str(folder), "dtype": dtype}
    most = 2 * sum(tensor.bytes for tensor in tensors.values())  # two weights of 4 bits in a byte
    ask_engine(MODULE, {**task, "weights": most if method == "mxfp4" or packed.get("load_in_4bit") else most // 2}, files.name, report)
    kind = kind_of_packing(packed)
    return (S_(f"{files.name} has {kind}. They are plain numbers now; what was rounded when they were packed does not come back."),)
