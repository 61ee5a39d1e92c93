"""Reading the header of a safetensors file: names, shapes and sizes of its tensors, without reading the tensors.

Format: 8 bytes (length n of the header, little-endian), n bytes of JSON, then the data. https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_HEADER_BYTES = 100_000_000
BYTES_PER_VALUE = {
    "F64": 8, "I64": 8, "U64": 8, "C64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2,
    "I8": 1, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip


class HeaderError(ValueError):
    """The file is not a whole safetensors file; the text says why."""


@dataclass(frozen=True)
class TensorInfo:
    """Shape and stored size of one tensor."""

    shape: tuple[int, ...]
    bytes: int

    @property
    def values(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of a safetensors file by name. Raises :class:`HeaderError` for a file that is cut off, damaged or something else."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if start.startswith(b"version "):
            raise HeaderError("is a Git LFS pointer, not the weights; fetch them with: git lfs pull")
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > size - 8 or length > MAX_HEADER_BYTES:
            raise HeaderError("is cut off or not a safetensors file")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise HeaderError("has a damaged header") from None
    if not isinstance(header, dict):
        raise HeaderError("has a damaged header")
    header.pop("__metadata__", None)
    tensors, spans = {}, []
    for name, entry in header.items():
        tensors[name], span = _tensor(name, entry)
        spans.append(span)
    _check_spans(sorted(spans), size - 8 - length)
    return tensors


def _tensor(name: str, entry: Any) -> tuple[TensorInfo, tuple[int, int]]:
    try:
        shape = tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        kind = entry["dtype"]
        valid = all(type(value) is int and value >= 0 for value in (*shape, begin, end))
    except (KeyError, TypeError, ValueError):
        valid = False
    if not valid:
        raise HeaderError(f"has a damaged entry for {name[:80]}")
    if kind in BYTES_PER_VALUE and math.prod(shape) * BYTES_PER_VALUE[kind] != end - begin:
        raise HeaderError(f"gives {name[:80]} a size that does not fit its shape")
    return TensorInfo(shape, end - begin), (begin, end)


def _check_spans(spans: list[tuple[int, int]], data_bytes: int) -> None:
    """Tensors lie one after the other and fill the file: no gap, no overlap, nothing missing."""
    position = 0
    for begin, end in spans:
        if begin != position:
            raise HeaderError("has tensors that overlap or leave gaps")
        position = end
    if position > data_bytes:
        raise HeaderError(f"is cut off: {position - data_bytes:,} bytes are missing")
    if position < data_bytes:
        raise HeaderError(f"has {data_bytes - position:,} bytes after its last tensor")
