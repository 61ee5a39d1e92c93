"""Models in a form that cannot be trained: what they are, and the way out, as sentences. Read from names and config.json alone."""

from __future__ import annotations

import re
import shlex
from typing import Any

from rlhf_studio.inputs.models.files import ModelFiles
from rlhf_studio.inputs.models.gguf import gguf_files
from rlhf_studio.inputs.models.pickles import convert_command
from rlhf_studio.language import S_

ENDINGS = {
    ".npz": S_("MLX or NumPy arrays"),
    ".h5": "TensorFlow",
    ".msgpack": "Flax",
    ".onnx": "ONNX",
    ".ot": "Rust",
    ".tflite": "TensorFlow Lite",
    ".nemo": "NeMo",
}
"""How weights of other programs end."""
ORIGINAL = S_("use the original model with safetensors weights")
PREQUANTIZED = {
    "awq": "AWQ", "gptq": "GPTQ", "fp8": "FP8", "fbgemm_fp8": "FP8", "mxfp4": "MXFP4", "hqq": "HQQ", "aqlm": "AQLM", "quanto": "Quanto",
    "eetq": "EETQ", "bitnet": "BitNet",
}  # fmt: skip
"""``quant_method`` in config.json -> what people call it, where that is another word."""
UNPACKABLE = ("bitsandbytes", "fp8", "mxfp4")
"""``quant_method`` of weights of which ``convert`` makes plain numbers."""
SHARD = re.compile(r"-\d{5}-of-\d{5}\.safetensors$")


def gguf_advice(files: ModelFiles) -> str:
    """What a person can do about a model that has only GGUF files."""
    names = gguf_files(files)
    command = convert_command(files.name, files.revision)
    if len(names) == 1:
        return S_(f"{files.name} holds a GGUF file, which cannot be trained as it is; convert it first: {command}")
    listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    way_out = S_(f"convert one first: {command} --file {shlex.quote(names[0])}")
    return S_(f"{files.name} holds {len(names)} GGUF files ({listed}), which cannot be trained as they are; {way_out}")


def other_weights(files: ModelFiles) -> str:
    """Why a folder without ``model.safetensors`` and its index has no weights that can be used, and what to do."""
    name, stored = files.name, sorted(files.sizes)
    shards = [each for each in stored if SHARD.search(each)]
    if shards:
        return S_(f"{name} has {shards[0]}, but not model.safetensors.index.json, which says what is in which file; get that file too")
    single = [each for each in stored if each.endswith(".safetensors") and not each.startswith("adapter_")]
    if single:
        return S_(f"{name} has {single[0]}, but no model.safetensors; if that file holds the whole model by transformers' names, rename it")
    if gguf_files(files):
        return gguf_advice(files)
    for each in stored:
        if kind := next((kind for ending, kind in ENDINGS.items() if each.endswith(ending)), ""):
            return S_(f"{name} has no weights that can be trained: model.safetensors is missing, and {each} is for {kind}; {ORIGINAL}")
    return S_(f"{name} has no weights: model.safetensors is missing")


def mlx_command(name: str) -> str:
    """The command of mlx-lm that writes a model with plain weights."""
    short = name.rstrip("/").rsplit("/", 1)[-1] or "model"
    command = shlex.join(["mlx_lm.convert", "--hf-path", name, "--mlx-path", f"converted/{short}", "--dequantize"])
    return S_(f"let mlx-lm (pip install mlx-lm) write plain weights: {command}")


def quantized_before(name: str, revision: str, config: dict[str, Any]) -> str:
    """What a model with quantized weights is, and the way out; empty for weights that are plain numbers."""
    packed, of_mlx = config.get("quantization_config"), config.get("quantization")
    if isinstance(of_mlx, dict) and "bits" in of_mlx:
        return S_(
            f"{name} has weights of {of_mlx['bits']} bits for Apple's MLX, which cannot be trained here; {mlx_command(name)}, or {ORIGINAL}"
        )
    if not isinstance(packed, dict) or not packed:
        return ""
    kind = kind_of_packing(packed)
    if packed.get("quant_method") in UNPACKABLE:
        return S_(f"{name} has {kind}, which cannot be trained; make plain numbers of them first: {convert_command(name, revision)}")
    return S_(f"{name} has {kind}, which were made for answering and cannot be trained; {ORIGINAL}, from which it was made")


def kind_of_packing(packed: dict[str, Any]) -> str:
    """``GPTQ weights of 4 bits``: how a sentence names what ``quantization_config`` describes."""
    method = str(packed.get("quant_method") or "")[:40]
    bits = packed.get("bits") or packed.get("w_bit") or (4 if packed.get("load_in_4bit") else 8 if packed.get("load_in_8bit") else None)
    size = f" of {bits} bits" if type(bits) is int else ""
    return f"{PREQUANTIZED.get(method, method or 'quantized')} weights{size}"
