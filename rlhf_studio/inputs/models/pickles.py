"""Weights that a model has only as pickles: which files they are, and how they become safetensors.

The files are never opened in this process. A helper (``engine/process/unpickling.py``) reads them with torch's weights-only loader, which
knows tensors and plain containers and refuses everything else, under limits of memory and time, without the secrets of our environment.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.helper import HelperError, ask_helper
from rlhf_studio.inputs.models.files import ModelError, ModelFiles
from rlhf_studio.inputs.models.safetensors_header import HeaderError, read_header
from rlhf_studio.language import S_
from rlhf_studio.units import format_bytes

MODULE = "rlhf_studio.engine.process.unpickling"
SECONDS_PER_FILE = 900.0
MOST_BYTES = 2**40  # the helper lowers this itself, once it knows how much loading torch took
SIDE_FILES = (".json", ".txt", ".model", ".jinja")
KINDS = {"pytorch_model": "model", "adapter_model": "adapter_model"}
"""Stems of pickled weights, and what transformers and peft call the same weights as safetensors."""


def convert_command(name: str, revision: str = "main") -> str:
    """The command that converts the model, as a person would type it."""
    short = os.path.basename(name.rstrip("/")) or "model"
    given = [name, f"converted/{short}", *(["--revision", revision] if revision != "main" else [])]
    return S_(f"python -m rlhf_studio convert {shlex.join(given)}")


def pickled_weights(files: ModelFiles) -> tuple[str, list[str]] | None:
    """(stem, files) of the weights that can be converted; None when there are none under the names that transformers and peft give.

    Raises :class:`ModelError` for shards that are missing, or a list of shards that is damaged.
    """
    for stem in KINDS:
        if f"{stem}.bin" in files.sizes:
            return stem, [f"{stem}.bin"]
        if f"{stem}.bin.index.json" in files.sizes:
            return stem, _shards(files, f"{stem}.bin.index.json")
    return None


def _shards(files: ModelFiles, index: str) -> list[str]:
    path = files.small(index)
    try:
        weight_map = json.loads(path.read_text(encoding="utf-8") if path else "")["weight_map"]
        shards = sorted({str(shard) for shard in weight_map.values()})
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise ModelError(f"{index} of {files.name} is damaged: it does not list the weight files") from None
    missing = [shard for shard in shards if shard not in files.sizes]
    if missing or not shards:
        raise ModelError(f"{files.name} is incomplete: {missing[0] if missing else 'every weight file'} is missing")
    return shards


def write_pickled(files: ModelFiles, folder: Path, report: Callable[[str], None]) -> tuple[str, ...]:
    """Write the model into ``folder`` with its pickled weights as safetensors, and the files beside them as they are.

    ``report`` is called with a line about each step. Raises :class:`ModelError` for a file that is not only weights. Nothing is lost: no
    sentences.
    """
    weights = pickled_weights(files)
    assert weights is not None
    stem, pickles = weights
    needed, free = sum(files.sizes[pickle] for pickle in pickles), shutil.disk_usage(folder).free
    if needed > free:
        raise ModelError(f"{files.name} needs about {format_bytes(needed)} as safetensors, but only {format_bytes(free)} are free there")
    for side in sorted(files.sizes):
        if side.endswith(SIDE_FILES) and "/" not in side and not side.endswith(".bin.index.json"):
            shutil.copyfile(_own_file(files, side), folder / side)
    _write_weights(files, pickles, KINDS[stem], folder, report)
    return ()


def _own_file(files: ModelFiles, name: str) -> Path:
    """Where a side file really lies. Raises :class:`ModelError` when it is a link that leads out of the model's folder.

    A snapshot in the hub's cache is a folder of links to the ``blobs`` beside ``snapshots``: these are the model's own.
    """
    path = files.fetch(name)
    if files.folder is None:  # fetched by the hub's client, into its own cache
        return path
    target, folder = path.resolve(), files.folder.resolve()
    own = [folder]
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith("models--"):
        own.append(folder.parents[1] / "blobs")
    if not any(target.is_relative_to(allowed) for allowed in own) or not target.is_file():
        raise ModelError(f"{name} of {files.name} is a link that leads out of the folder; put the file itself there, or remove the link")
    return target


def _write_weights(files: ModelFiles, pickles: list[str], stem: str, folder: Path, report: Callable[[str], None]) -> None:
    """Let one helper write safetensors files from the pickles."""
    targets = [f"{stem}-{number:05}-of-{len(pickles):05}.safetensors" for number in range(1, len(pickles) + 1)]
    targets = targets if len(pickles) > 1 else [f"{stem}.safetensors"]
    jobs = []
    for pickle, target in zip(pickles, targets, strict=True):
        report(f"fetching {pickle}" if files.folder is None else f"reading {pickle}")
        jobs.append({"source": str(files.fetch(pickle)), "name": pickle, "target": str(folder / target)})
    answers = ask_helper(MODULE, {"jobs": jobs}, memory_bytes=MOST_BYTES, seconds=SECONDS_PER_FILE)
    try:
        for message in answers:
            if "problem" in message:
                raise ModelError(f"{message['name']} of {files.name} {message['problem']}")
            report(f"converted {message['name']}: {message['tensors']} tensors")
    except HelperError as error:
        raise ModelError(f"the weights of {files.name} cannot be read: {error}") from None
    finally:
        answers.close()
    if len(targets) > 1:
        _write_index(targets, stem, folder)


def _write_index(targets: list[str], stem: str, folder: Path) -> None:
    """Write the list of what is in which shard."""
    where: dict[str, str] = {}
    total = 0
    for target in targets:
        try:
            tensors = read_header(folder / target)
        except (OSError, HeaderError) as error:
            raise ModelError(f"{target} was not written whole: {error}") from None
        where |= dict.fromkeys(tensors, target)
        total += sum(tensor.bytes for tensor in tensors.values())
    index: dict[str, Any] = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
