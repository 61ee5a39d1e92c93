"""The helper that makes an ordinary model of a GGUF file, started by ``inputs/models/gguf.py``.

transformers reads the file (``gguf_file=``) with the package ``gguf``, and gives every weight as a plain number. It refuses to save what
it has read, so the weights move, without a copy, into a fresh model of the same class. What the reader passes over is looked for here: a
model whose positions or scores are computed another way than the file says is refused, for nobody would see it.
"""

from __future__ import annotations

import importlib
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import pre_tokenizers
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rlhf_studio.engine.models.load_model import UNUSABLE
from rlhf_studio.engine.process.plain_copy import SHARD, lack_of_room, plain_config, plain_copy
from rlhf_studio.inputs.helper import answer, read_task
from rlhf_studio.language import S_

SAMPLED_ROWS = 256  # of each tensor, by which the rounding is measured
PLAIN = ("F32", "F16", "BF16", "F64")
UNEVEN = ("IQ", "MXFP", "NVFP")  # types whose neighbouring values are not equally far apart
SHARE_A_SCALE = {32: 32, 256: 16}  # weights of a block -> weights beside each other that have one scale, in every type of such blocks
LLAMA_3: dict[str, Any] = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
DIGIT_SPLITTERS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
"""``tokenizer.ggml.pre`` of tokenizers that take each digit for itself, and else split as GPT-2 does (llama.cpp: llama-vocab.cpp)."""
SPLIT_AS_GPT2 = ("gpt-2", "phi-2", "olmo", "jais", "mpt", "roberta-bpe", "trillion", "granite-docling")


class NotConvertible(ValueError):
    """The file cannot be made a model; the text goes on after the file's name."""


def main() -> None:
    """Answer with what was made, or with what is wrong."""
    task = read_task()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("gguf").setLevel(logging.ERROR)
    try:
        answer({"made": convert(Path(task["source"]), Path(task["target"]), task["dtype"])})
    except NotConvertible as error:
        answer({"problem": str(error)})


def convert(source: Path, target: Path, dtype: str) -> dict[str, Any]:
    """Write the model and the tokenizer of the file ``source`` into the folder ``target``, with weights of ``dtype``.

    Gives what :func:`rounding` says, ``weights`` (their number), and ``splitter`` (a way of splitting texts that is not known, or empty).
    Raises :class:`NotConvertible`.
    """
    reader = _read(source)
    weights = sum(int(tensor.n_elements) for tensor in reader.tensors)
    if problem := lack_of_room(weights * getattr(torch, dtype).itemsize, target, dtype):
        raise NotConvertible(problem)
    model = _plain_model(_load(source, dtype), reader)
    tokenizer, splitter = _tokenizer(source, reader)
    model.save_pretrained(target, max_shard_size=SHARD)
    tokenizer.save_pretrained(target)
    _leave_out_strangers(target / "tokenizer.json", len(setting(reader, "tokenizer.ggml.tokens")))
    return {**rounding(reader), "weights": weights, "splitter": splitter}


def _read(source: Path) -> Any:
    """The file's settings and tensors, none of them unpacked."""
    try:
        gguf: Any = importlib.import_module("gguf")
    except ImportError:
        raise NotConvertible("needs the package that reads GGUF files: pip install gguf") from None
    try:
        reader = gguf.GGUFReader(source)
    except (ValueError, LookupError, KeyError, OSError, TypeError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split())[:120]
        raise NotConvertible(f"is damaged, cut off, or not a GGUF file ({reason or type(error).__name__})") from None
    if not isinstance(setting(reader, "general.architecture"), str) or not reader.tensors:
        raise NotConvertible("holds no model")
    return reader


def setting(reader: Any, name: str) -> Any:
    """One of the file's settings; None where it is not there."""
    field = reader.get_field(name)
    return None if field is None else field.contents()


def _load(source: Path, dtype: str) -> PreTrainedModel:
    options: dict[str, Any] = {"output_loading_info": True, "trust_remote_code": False, "ignore_mismatched_sizes": True}  # refused below
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=getattr(torch, dtype), **options)
    except (*UNUSABLE, NotImplementedError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise NotConvertible(f"cannot be read by transformers {transformers.__version__}: {reason or type(error).__name__}") from None
    model, info = loaded
    wrong = [(key, S_("no weights")) for key in info["missing_keys"]]
    wrong += [(key, S_("weights of another shape")) for key, *_ in info["mismatched_keys"]]
    for key, what in sorted(wrong)[:1]:
        raise NotConvertible(f"has {what} for {key}, by the way transformers {transformers.__version__} reads its settings")
    return model  # type: ignore[no-any-return]


def _plain_model(packed: PreTrainedModel, reader: Any) -> PreTrainedModel:
    """A fresh model of the same class with the same weights in the same memory, without the settings of quantization."""
    config = plain_config(packed)
    config.name_or_path = ""
    if (factors := _position_factors(reader)) is not None:
        config.rope_parameters = {**config.rope_parameters, **_as_llama_3(factors, config.rope_parameters["rope_theta"])}
    _carry_over(reader, config.get_text_config())
    _require_all_was_read(packed, reader, 0 if factors is None else factors.size)
    _require_settings(reader, config)
    return plain_copy(packed, config)


def _require_all_was_read(model: PreTrainedModel, reader: Any, known: int) -> None:
    """Raises :class:`NotConvertible` for numbers in the file that have no place in the model: it would compute without them."""
    places = sum(parameter.numel() for parameter in model.parameters())
    stored = {tensor.name: int(tensor.n_elements) for tensor in reader.tensors}
    layers = getattr(model.config.get_text_config(), "num_hidden_layers", math.inf)
    beyond = sum(count for name, count in stored.items() if name.startswith("blk.") and int(name.split(".")[1]) >= layers)
    tied = stored.get("output.weight", 0) if model.config.get_text_config().tie_word_embeddings else 0  # written twice by some writers
    left = sum(stored.values()) - known - places
    if left not in (0, beyond, tied):  # beyond: layers that guess more than one token ahead, which transformers has not
        more = S_(f"{left:,} numbers more") if left > 0 else S_(f"{-left:,} numbers less")
        raise NotConvertible(f"has {more} than transformers {transformers.__version__} has places for; use the original model")


def _position_factors(reader: Any) -> np.ndarray | None:
    """What Llama 3.1 and later divide the frequencies of their positions by; the reader of transformers passes over it."""
    return next((np.asarray(tensor.data, dtype=np.float32) for tensor in reader.tensors if tensor.name == "rope_freqs.weight"), None)


def _as_llama_3(factors: np.ndarray, theta: float) -> dict[str, Any]:
    """The settings that give these factors (``_compute_llama3_parameters`` of transformers). Raises :class:`NotConvertible` for others."""
    scale = float(factors.max())
    wavelengths = 2 * math.pi * theta ** (np.arange(factors.size) / factors.size)
    low, high, original = LLAMA_3["low_freq_factor"], LLAMA_3["high_freq_factor"], LLAMA_3["original_max_position_embeddings"]
    smooth = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    if not np.allclose(1 / ((1 - smooth) / scale + smooth), factors, rtol=1e-3):
        raise NotConvertible("scales its positions in a way that cannot be told from the file; use the original model")
    return {**LLAMA_3, "factor": scale}


def _carry_over(reader: Any, text: Any) -> None:
    """Take from the file what the reader of transformers leaves at its default for some kinds of models (StarCoder 2, Phi-3)."""
    kind = setting(reader, "general.architecture")
    rope, theta = getattr(text, "rope_parameters", None) or {}, setting(reader, f"{kind}.rope.freq_base")
    if theta and rope.get("rope_theta"):
        text.rope_parameters = {**rope, "rope_theta": theta}
    if getattr(text, "sliding_window", 0) is None:
        text.sliding_window = setting(reader, f"{kind}.attention.sliding_window")


def _require_settings(reader: Any, config: Any) -> None:
    """Raises :class:`NotConvertible` where the file says one thing and the model that transformers made of it does another."""
    kind = setting(reader, "general.architecture")
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or {}
    scaling = setting(reader, f"{kind}.rope.scaling.type")
    if scaling not in (None, "none") and rope.get("rope_type") in (None, "default"):
        raise NotConvertible(f"scales its positions ({scaling}), which transformers {transformers.__version__} does not read")
    pairs = {
        "rope.freq_base": _theta(rope, setting(reader, f"{kind}.rope.freq_base")),
        "attention.sliding_window": getattr(text, "sliding_window", 0) or setting(reader, f"{kind}.attention.sliding_window"),
        "attention.key_length": getattr(text, "global_head_dim", None) or getattr(text, "head_dim", None),
        **{f"attention.layer_norm_{norm}epsilon": _first(text, NORMS) for norm in ("rms_", "")},
        **{name: getattr(text, name, None) for name in ("attn_logit_softcapping", "final_logit_softcapping", "logit_scale")},
    }
    for name, ours in pairs.items():
        said = setting(reader, f"{kind}.{name}")
        if isinstance(said, int | float) and said and not (isinstance(ours, int | float) and math.isclose(said, ours, rel_tol=1e-4)):
            version = f"transformers {transformers.__version__}"
            raise NotConvertible(f"says {kind}.{name} is {said:g}, but {version} makes a model of it with {ours}; use the original model")


def _theta(rope: dict[str, Any], said: Any) -> Any:
    """The base of the positions' frequencies; where kinds of layers have one each, the one that the file names."""
    each = [part["rope_theta"] for part in rope.values() if isinstance(part, dict) and "rope_theta" in part]
    return said if said in each else next(iter(each), rope.get("rope_theta"))


NORMS = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps")


def _first(settings: Any, names: tuple[str, ...]) -> Any:
    return next((getattr(settings, name) for name in names if hasattr(settings, name)), None)


def _tokenizer(source: Path, reader: Any) -> tuple[PreTrainedTokenizerBase, str]:
    """The file's tokenizer, and the name of a way of splitting texts that neither transformers nor this file knows."""
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, trust_remote_code=False)
    except (*UNUSABLE, NotImplementedError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise NotConvertible(f"has a tokenizer that transformers {transformers.__version__} cannot read: {reason}") from None
    named = setting(reader, "tokenizer.ggml.pre") or ""
    backend = tokenizer.backend_tokenizer
    if not isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):  # else transformers took GPT-2's
        return tokenizer, ""
    if named in DIGIT_SPLITTERS:
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer])
        return tokenizer, ""
    return tokenizer, "" if named in SPLIT_AS_GPT2 else str(named or "unknown")[:60]


def _leave_out_strangers(path: Path, count: int) -> None:
    """Take out what is not among the file's ``count`` tokens: special tokens that transformers' class adds, and no weights know."""
    described = json.loads(path.read_text(encoding="utf-8"))
    described["added_tokens"] = [token for token in described["added_tokens"] if token["id"] < count]
    path.write_text(json.dumps(described, ensure_ascii=False, indent=2), encoding="utf-8")


def rounding(reader: Any) -> dict[str, Any]:
    """What was rounded away when the file was written.

    ``types``: share of the weights in each type of number, most first. ``bits``: stored bits per weight. ``off``: half the distance between
    neighbouring values, averaged over the weights: a rounded weight is at most that far from what it was. ``size``: mean of the weights
    without their signs. ``file``: bytes of the file. The distance is that of some weights beside each other
    that share their scale.
    """
    quants: Any = importlib.import_module("gguf.quants")
    constants: Any = importlib.import_module("gguf.constants")
    counts: dict[str, int] = {}
    off = size = 0.0
    for tensor in reader.tensors:
        kind, count = tensor.tensor_type.name, int(tensor.n_elements)
        counts[kind] = counts.get(kind, 0) + count
        rows = tensor.data.reshape(-1, tensor.data.shape[-1])
        some = rows[:: max(1, len(rows) // SAMPLED_ROWS)]
        values = torch.from_numpy(np.array(quants.dequantize(some, tensor.tensor_type), dtype=np.float32))
        size += count * float(values.abs().mean())
        if kind not in PLAIN:
            block, _ = constants.GGML_QUANT_SIZES[tensor.tensor_type]
            off += count * float(_steps(values.reshape(-1, SHARE_A_SCALE.get(block, 16)), not kind.startswith(UNEVEN)).mean()) / 2
    total = sum(counts.values())
    types = {kind: count / total for kind, count in sorted(counts.items(), key=lambda entry: -entry[1])}
    bits = 8 * sum(int(tensor.n_bytes) for tensor in reader.tensors) / total
    return {"types": types, "bits": bits, "off": off / total, "size": size / total, "file": int(reader.data.nbytes)}


def _steps(groups: Tensor, even: bool) -> Tensor:
    """(N,) distance between neighbouring values of each row of ``groups`` (N, G); 0 where all are equal.

    The smallest between two that differ, where all steps are ``even``, else the mean.
    """
    gaps = groups.sort(dim=1).values.diff(dim=1)
    if not even:
        return gaps.sum(dim=1) / (gaps > 0).sum(dim=1).clamp(min=1)
    smallest = gaps.masked_fill(gaps <= 0, math.inf).amin(dim=1)
    return smallest.masked_fill(smallest.isinf(), 0.0)


if __name__ == "__main__":
    main()
