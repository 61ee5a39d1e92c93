"""The safetensors files that hold a model's weights, and the names and shapes in them."""

from __future__ import annotations

from rlhf_studio.inputs.models.files import ModelError, ModelFiles, read_json
from rlhf_studio.inputs.models.other_formats import other_weights
from rlhf_studio.inputs.models.pickles import convert_command, pickled_weights
from rlhf_studio.inputs.models.safetensors_header import HeaderError, TensorInfo, read_header

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


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
        return shards
    pickles = sorted(file_name for file_name in files.sizes if file_name.endswith(PICKLES))
    if pickles:
        problem = f"{files.name} has its weights only as a pickle ({pickles[0]}), which can run code when opened"
        raise ModelError(f"{problem}; {pickle_advice(files)}")
    raise ModelError(other_weights(files))


def pickle_advice(files: ModelFiles) -> str:
    """What a person can do about weights that are only pickles, as the end of a sentence."""
    if pickled_weights(files) is None:
        return "save the model again with transformers, which writes safetensors"
    return f"convert it first: {convert_command(files.name, files.revision)}"


def read_tensors(files: ModelFiles, weights: list[str]) -> dict[str, TensorInfo]:
    """The tensors in these files by name; empty when they are only on the hub. Raises :class:`ModelError` for a damaged file."""
    if files.folder is None:
        return {}
    tensors: dict[str, TensorInfo] = {}
    for weight in weights:
        try:
            tensors.update(read_header(files.folder / weight))
        except HeaderError as error:
            raise ModelError(f"{weight} of {files.name} {error}") from None
    return tensors
