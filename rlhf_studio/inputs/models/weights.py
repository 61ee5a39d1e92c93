"""The safetensors files that hold a model's weights, and the names and shapes in them."""

from __future__ import annotations

import re

from rlhf_studio.inputs.models.files import ModelError, ModelFiles, read_json
from rlhf_studio.inputs.models.other_formats import other_weights
from rlhf_studio.inputs.models.pickles import convert_command, pickled_weights
from rlhf_studio.inputs.models.safetensors_header import HeaderError, TensorInfo, read_header
from rlhf_studio.language import S_

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
COUNTED = re.compile(r"-\d{5}-of-(\d{5})\.safetensors$")


def weight_files(files: ModelFiles) -> list[str]:
    """Names of the safetensors files with all of the model's weights. Raises :class:`ModelError` when one is missing or there is none."""
    if "model.safetensors" in files.sizes:
        return ["model.safetensors"]
    if "model.safetensors.index.json" in files.sizes:
        weight_map = read_json(files, "model.safetensors.index.json").get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ModelError(f"model.safetensors.index.json of {files.name} has no weight_map")
        shards = sorted({str(shard) for shard in weight_map.values()})
        missing = [shard for shard in shards if shard not in files.sizes]
        if missing:
            raise ModelError(f"{files.name} is incomplete: {missing[0]} is missing ({len(missing)} of {len(shards)} weight files)")
        _require_whole_index(files.name, shards)
        return shards
    pickles = sorted(file_name for file_name in files.sizes if file_name.endswith(PICKLES))
    if pickles:
        problem = S_(f"{files.name} has its weights only as a pickle ({pickles[0]}), which can run code when opened")
        raise ModelError(f"{problem}; {pickle_advice(files)}")
    raise ModelError(other_weights(files))


def _require_whole_index(name: str, shards: list[str]) -> None:
    """Raises :class:`ModelError` when the list leaves out one of the shards that their names count."""
    counts = {int(match[1]) for shard in shards if (match := COUNTED.search(shard))}
    if counts and counts != {len(shards)}:
        says = S_(f"lists {len(shards)} weight files, but their names count {' and '.join(map(str, sorted(counts)))}")
        raise ModelError(f"model.safetensors.index.json of {name} {says}; it belongs to other weights, so get both again from one source")


def pickle_advice(files: ModelFiles) -> str:
    """What a person can do about weights that are only pickles, as the end of a sentence."""
    if pickled_weights(files) is None:
        return S_("save the model again with transformers, which writes safetensors")
    return S_(f"convert it first: {convert_command(files.name, files.revision)}")


def read_tensors(files: ModelFiles, weights: list[str]) -> dict[str, TensorInfo]:
    """The tensors in these files by name; empty when they are only on the hub. Raises :class:`ModelError` for a damaged file,
    and for a tensor that two of them hold.
    """
    if files.folder is None:
        return {}
    tensors: dict[str, TensorInfo] = {}
    for weight in weights:
        try:
            further = read_header(files.folder / weight)
        except HeaderError as error:
            raise ModelError(f"{weight} of {files.name} {error}") from None
        if twice := sorted(tensors.keys() & further.keys()):
            raise ModelError(f"{weight} of {files.name} holds {twice[0][:80]}, and so does another weight file; save the model again")
        tensors.update(further)
    return tensors
