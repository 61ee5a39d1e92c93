"""What a program hands over, as numpy: lists, numpy arrays and tensors of any library that has ``detach`` and ``numpy``.

Nothing here imports torch. Whatever cannot be used is refused with one sentence that names the argument and the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def to_numpy(values: Any) -> np.ndarray:
    """An array of the values, on the CPU and apart from the training's own memory. Raises ValueError and TypeError for what is none."""
    if hasattr(values, "detach"):
        tensor = values.detach()
        tensor = tensor.float() if tensor.is_floating_point() else tensor  # numpy has no bfloat16
        return np.array(tensor.cpu().numpy())
    return np.array(values)


def per_response(values: Any, count: int, name: str) -> np.ndarray:
    """One number for each response, float64, shape (count,); None counts as unknown, which is NaN. Raises ValueError."""
    if not hasattr(values, "detach") and isinstance(values, Sequence):
        values = [math.nan if value is None else value for value in values]
    try:
        array = to_numpy(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers, one for each response") from error
    if array.shape != (count,):
        raise ValueError(f"{name} must be {count} numbers, one for each response, and has the shape {array.shape}")
    return array


def flags(values: Any, count: int, name: str) -> list[bool | None]:
    """True or false for each response, or None where it is not known. Raises ValueError."""
    listed = to_numpy(values).tolist() if hasattr(values, "detach") or isinstance(values, np.ndarray) else list(values)
    if len(listed) != count or not all(value is None or isinstance(value, bool) or value in (0, 1) for value in listed):
        raise ValueError(f"{name} must be true or false for each of the {count} responses")
    return [None if value is None else bool(value) for value in listed]


def texts(values: Any, count: int, name: str) -> list[str]:
    """One text for each response. Raises ValueError."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be a list of texts, one for each response")
    if len(values) != count:
        raise ValueError(f"{name} must be {count} texts, one for each response, and there are {len(values)}")
    return list(values)


def token_texts(values: Any, lengths: Sequence[int | None], name: str) -> list[list[str]]:
    """The texts of each response's tokens. Raises ValueError."""
    if not isinstance(values, Sequence) or len(values) != len(lengths):
        raise ValueError(f"{name} must be {len(lengths)} lists of texts, one for each response")
    for row, (pieces, length) in enumerate(zip(values, lengths, strict=True)):
        if isinstance(pieces, str) or not all(isinstance(piece, str) for piece in pieces):
            raise ValueError(f"{name}[{row}] must be a list of texts, one for each token")
        if length is not None and len(pieces) != length:
            raise ValueError(f"{name}[{row}] has {len(pieces)} texts, and the response has {length} tokens")
    return [list(pieces) for pieces in values]


def rows_of_ids(values: Any, mask: Any, count: int, name: str, pad: int | None = None) -> list[np.ndarray]:
    """Token ids of each response, int32, without padding. Raises ValueError; without a mask also for several ``pad`` at an end."""
    rows = _rows(values, mask, count, name)
    for row, ids in enumerate(rows):
        if ids.size and (not np.issubdtype(ids.dtype, np.integer) or ids.min() < 0 or ids.max() > 2**31 - 1):
            raise ValueError(f"{name}[{row}] must be token ids: whole numbers from 0 on")
        if mask is None and pad is not None and ids.size > 1 and ((ids[-2:] == pad).all() or (ids[:2] == pad).all()):
            mine = name.replace("ids", "mask")  # a single one may be the end of a response, or the start of a prompt
            raise ValueError(f"{name}[{row}] has padding (the token {pad}): give {mine}, 1 at real tokens, or rows without padding")
    return [ids.astype(np.int32) for ids in rows]


def rows_of_numbers(values: Any, mask: Any, lengths: Sequence[int | None], name: str) -> list[np.ndarray]:
    """A number for each token of each response, float32. Raises ValueError where a row is not as long as its response."""
    rows = _rows(values, mask, len(lengths), name)
    for row, (numbers, length) in enumerate(zip(rows, lengths, strict=True)):
        if length is None:
            raise ValueError(f"{name} is for tokens: give response_ids or response_tokens too")
        if len(numbers) != length:
            raise ValueError(f"{name}[{row}] has {len(numbers)} numbers, and the response has {length} tokens")
        if numbers.dtype.kind not in "fiub":
            raise ValueError(f"{name}[{row}] must be numbers, one for each token")
    return [numbers.astype(np.float32) for numbers in rows]


def _rows(values: Any, mask: Any, count: int, name: str) -> list[np.ndarray]:
    """Of a padded table with a mask the places where the mask is 1; otherwise each row as it is."""
    tables = values if hasattr(values, "detach") or isinstance(values, np.ndarray) else None
    try:
        rows = list(to_numpy(tables)) if tables is not None else [to_numpy(row) for row in values]
        inside = None if mask is None else to_numpy(mask).astype(bool)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a table (responses, tokens), or a list with a row for each response") from error
    if len(rows) != count or any(row.ndim != 1 for row in rows):
        raise ValueError(f"{name} must have {count} rows, one for each response, each with one number for each token")
    if inside is None or not all(row.shape == inside.shape[1:] for row in rows):
        return rows  # already without padding
    if inside.shape[0] != count:
        raise ValueError(f"the mask of {name} must have {count} rows")
    return [row[chosen] for row, chosen in zip(rows, inside, strict=True)]
