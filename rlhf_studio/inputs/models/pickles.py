"""Weights that a model has only as pickles: which files they are, and how they become safetensors.

The files are never opened in this process. A helper (``engine/process/unpickling.py``) reads them with torch's weights-only loader, which
knows tensors and plain containers and refuses everything else, under limits of memory and time, without the secrets of our environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.helper import HelperError, ask_helper
from rlhf_studio.inputs.models.files import Hub, ModelError, ModelFiles, find_model, network_error
from rlhf_studio.inputs.models.safetensors_header import HeaderError, read_header
from rlhf_studio.units import format_bytes

MODULE = "rlhf_studio.engine.process.unpickling"
SECONDS_PER_FILE = 900.0
MOST_BYTES = 2**40  # the helper lowers this itself, once it knows how much loading torch took
SIDE_FILES = (".json", ".txt", ".model", ".jinja")
KINDS = {"pytorch_model": "model", "adapter_model": "adapter_model"}
"""Stems of pickled weights, and what transformers and peft call the same weights as safetensors."""


@dataclass(frozen=True)
class ConvertedModel:
    """What came of a conversion: the folder, its tensors, and the bytes of its weights."""

    folder: Path
    tensors: int
    bytes: int


def convert_command(name: str, revision: str = "main") -> str:
    """The command that converts the model, as a person would type it."""
    short = os.path.basename(name.rstrip("/")) or "model"
    given = [name, f"converted/{short}", *(["--revision", revision] if revision != "main" else [])]
    return f"python -m rlhf_studio convert {shlex.join(given)}"


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


def convert(
    name: str, out: Path, revision: str = "main", hub: Hub | None = None, report: Callable[[str], None] = lambda text: None
) -> ConvertedModel:
    """Write the model ``name`` (a folder or hub id) with safetensors weights into the folder ``out``, which must be empty or missing.

    Everything is written beside ``out`` first and renamed at the end. ``report`` is called with a line about each step.
    Raises :class:`ModelError` with one sentence when there is nothing to convert, or a file is not only weights.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"{out} exists and is not an empty folder; name another one")
    files = find_model(name, revision, hub)
    if any(file_name.endswith(".safetensors") for file_name in files.sizes):
        raise ModelError(f"{name} has safetensors weights already; there is nothing to convert")
    weights = pickled_weights(files)
    if weights is None:
        raise ModelError(f"{name} has no pytorch_model.bin and no adapter_model.bin; there is nothing to convert")
    stem, pickles = weights
    with _reading(name):
        out.parent.mkdir(parents=True, exist_ok=True)
    needed, free = sum(files.sizes[pickle] for pickle in pickles), shutil.disk_usage(out.parent).free
    if needed > free:
        raise ModelError(f"{out} needs about {format_bytes(needed)}, but only {format_bytes(free)} are free there")
    with _reading(name), tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as temporary:
        folder = Path(temporary) / "model"
        folder.mkdir()
        for side in sorted(files.sizes):
            if side.endswith(SIDE_FILES) and "/" not in side and not side.endswith(".bin.index.json"):
                shutil.copyfile(_own_file(files, side), folder / side)
        converted = _write_weights(files, pickles, KINDS[stem], folder, report)
        with contextlib.suppress(FileNotFoundError):
            out.rmdir()  # an empty one; rename does not replace it everywhere
        folder.rename(out)
    return ConvertedModel(out, *converted)


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


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except (OSError, HfHubHTTPError, network_error()) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200] or type(error).__name__
        raise ModelError(f"{name} cannot be converted: {reason}") from None


def _write_weights(files: ModelFiles, pickles: list[str], stem: str, folder: Path, report: Callable[[str], None]) -> tuple[int, int]:
    """(tensors, bytes) of the safetensors files that one helper wrote from the pickles."""
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
    return _finish(targets, stem, folder)


def _finish(targets: list[str], stem: str, folder: Path) -> tuple[int, int]:
    """Look at what was written, and write the list of shards when there are several."""
    where: dict[str, str] = {}
    total = 0
    for target in targets:
        try:
            tensors = read_header(folder / target)
        except (OSError, HeaderError) as error:
            raise ModelError(f"{target} was not written whole: {error}") from None
        where |= dict.fromkeys(tensors, target)
        total += sum(tensor.bytes for tensor in tensors.values())
        (folder / target).chmod(0o644)  # safetensors writes files that only their owner can read
    if len(targets) > 1:
        index: dict[str, Any] = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
        (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    return len(where), total
