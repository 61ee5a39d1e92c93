"""The command ``convert``: a model in another form becomes a folder with safetensors weights.

Weights that are only pickles become safetensors, a GGUF file and weights that were quantized before become plain numbers, and an adapter is
merged into its base.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.inputs.models.files import Hub, ModelError, ModelFiles, find_model, folder_files, network_error
from rlhf_studio.inputs.models.gguf import choose_file, gguf_files, write_dequantized
from rlhf_studio.inputs.models.merged_adapter import require_mergeable, write_merged
from rlhf_studio.inputs.models.pickles import pickled_weights, write_pickled
from rlhf_studio.inputs.models.safetensors_header import HeaderError, read_header
from rlhf_studio.inputs.models.unpacked import can_unpack, write_unpacked


@dataclass(frozen=True)
class ConvertedModel:
    """What came of a conversion: the folder, its tensors, the bytes of its weights, and sentences about what is lost."""

    folder: Path
    tensors: int
    bytes: int
    notes: tuple[str, ...] = ()


def convert(
    name: str,
    out: Path,
    revision: str = "main",
    hub: Hub | None = None,
    report: Callable[[str], None] = lambda text: None,
    *,
    file: str = "",
    dtype: str = "float32",
) -> ConvertedModel:
    """Write the model ``name`` (a folder, a hub id or a GGUF file) with safetensors weights into the folder ``out``, empty or missing.

    Everything is written beside ``out`` first and renamed at the end. ``report`` is called with a line about each step. ``file`` names one
    of several GGUF files, ``dtype`` the numbers that its weights become. Raises :class:`ModelError` with one sentence when there is
    nothing to convert, or a file is not only weights.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"{out} exists and is not an empty folder; name another one")
    files, file = _files(name, revision, hub, file)
    write = _writer(files, file, dtype, hub, report)
    with _reading(name):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as temporary:
            folder = Path(temporary) / "model"
            folder.mkdir()
            notes = write(folder)
            tensors, size = _look(folder)
            with contextlib.suppress(FileNotFoundError):
                out.rmdir()  # an empty one; rename does not replace it everywhere
            folder.rename(out)
    return ConvertedModel(out, tensors, size, notes)


def _files(name: str, revision: str, hub: Hub | None, file: str) -> tuple[ModelFiles, str]:
    path = Path(name)
    if path.suffix.lower() == ".gguf" and path.is_file():
        if file:
            raise ModelError(f"{name} is a GGUF file already; leave out --file", "file")
        return folder_files(str(path.parent), path.parent), path.name
    return find_model(name, revision, hub), file


def _writer(files: ModelFiles, file: str, dtype: str, hub: Hub | None, report: Callable[[str], None]) -> Callable[[Path], tuple[str, ...]]:
    """What writes the model into a folder. Raises :class:`ModelError` where that can be known before anything is written."""
    if file or (gguf_files(files) and not any(each.endswith(".safetensors") for each in files.sizes)):
        if not gguf_files(files):
            raise ModelError(f"{files.name} holds no GGUF files; leave out --file", "file")
        chosen = choose_file(files, file)
        return lambda folder: write_dequantized(files, chosen, dtype, folder, report)
    if "adapter_config.json" in files.sizes and "adapter_model.safetensors" in files.sizes:
        base = require_mergeable(files, hub)
        return lambda folder: write_merged(files, base, dtype, folder, report)
    if can_unpack(files):
        return lambda folder: write_unpacked(files, dtype, folder, report)
    if any(each.endswith(".safetensors") for each in files.sizes):
        raise ModelError(f"{files.name} has safetensors weights already; there is nothing to convert")
    if pickled_weights(files) is None:
        raise ModelError(f"{files.name} has no pytorch_model.bin, no adapter_model.bin and no GGUF file; there is nothing to convert")
    return lambda folder: write_pickled(files, folder, report)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except (OSError, HfHubHTTPError, network_error()) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200] or type(error).__name__
        raise ModelError(f"{name} cannot be converted: {reason}") from None


def _look(folder: Path) -> tuple[int, int]:
    """(tensors, bytes) of the safetensors files that were written, each read once more by its header."""
    tensors = size = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            header = read_header(path)
        except (OSError, HeaderError) as error:
            raise ModelError(f"{path.name} was not written whole: {error}") from None
        tensors, size = tensors + len(header), size + sum(tensor.bytes for tensor in header.values())
        path.chmod(0o644)  # safetensors writes files that only their owner can read
    return tensors, size
