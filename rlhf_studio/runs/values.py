"""How text, numbers and arrays are kept in SQLite so that they come back unchanged.

Three things SQLite cannot hold as they are: text with lone surrogates (kept as a blob, utf-8 with "surrogatepass"), numbers
that are not finite (NULL, with a flag ``nan``, ``inf`` or ``-inf`` beside it) and arrays (little-endian blobs with a shape).
Every decoder raises one of :data:`DAMAGE` for what no encoder wrote; the reader turns that into "damaged".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FLAGS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
DAMAGE = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError)
"""What a row that no writer of ours made can raise while it is read."""
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
"""Arrays are kept as float32: no larger number has a place in them, nor in a chart."""
_DTYPES = {"float32": np.dtype("<f4"), "int32": np.dtype("<i4")}


def encode_text(text: str) -> str | bytes:
    """The text itself, or a blob when it holds lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def decode_text(stored: str | bytes) -> str:
    """The inverse of :func:`encode_text`."""
    if isinstance(stored, bytes):
        return stored.decode("utf-8", "surrogatepass")
    if not isinstance(stored, str):
        raise ValueError(f"text expected, not {type(stored).__name__}")
    return stored


def encode_number(value: float | None) -> tuple[float | None, str | None]:
    """(value, flag): the flag is None for finite numbers and for None itself."""
    if value is None:
        return None, None
    number = float(value)
    if math.isfinite(number):
        return number, None
    return None, "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"


def decode_number(value: float | None, flag: str | None) -> float | None:
    """The inverse of :func:`encode_number`."""
    if flag is not None:
        if flag not in FLAGS:
            raise ValueError(f"unknown flag {flag!r}")
        return FLAGS[flag]
    if value is not None and not isinstance(value, int | float):
        raise ValueError(f"number expected, not {type(value).__name__}")
    return None if value is None else float(value)


def encode_numbers(numbers: Mapping[str, float | None]) -> tuple[list[float | None], str | None]:
    """The values of one row in order, and the flags of those that are not finite as JSON (None when there are none)."""
    pairs = {name: encode_number(value) for name, value in numbers.items()}
    flags = {name: flag for name, (_, flag) in pairs.items() if flag is not None}
    return [value for value, _ in pairs.values()], json.dumps(flags) if flags else None


def decode_numbers(values: Mapping[str, float | None], flags: str | None) -> dict[str, Any]:
    """The inverse of :func:`encode_numbers`. The values are typed Any because only the caller knows which may be None."""
    known = decode_json(flags, None) if flags else {}
    if not isinstance(known, dict):
        raise ValueError(f"flags by name expected, not {type(known).__name__}")
    return {name: decode_number(value, known.get(name)) for name, value in values.items()}


def encode_json(value: Any) -> tuple[str | bytes, str | bytes | None]:
    """(JSON text, flags): numbers that are not finite become null, and the flags say where they were and what.

    Not ``ensure_ascii``: a pair of lone surrogates would come back as one character. Numpy scalars and arrays become plain
    numbers and lists; tuples become lists; the keys of mappings become text. Raises TypeError for anything JSON cannot hold.
    """
    flags: list[tuple[list[str | int], str]] = []
    plain = _without_specials(value, [], flags)
    texts = [encode_text(json.dumps(part, ensure_ascii=False, allow_nan=False)) for part in (plain, flags)]
    return texts[0], texts[1] if flags else None


def _without_specials(value: Any, path: list[str | int], flags: list[tuple[list[str | int], str]]) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        flags.append((path, encode_number(value)[1] or ""))
        return None
    if isinstance(value, Mapping):
        return {str(key): _without_specials(item, [*path, str(key)], flags) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_specials(item, [*path, index], flags) for index, item in enumerate(value)]
    return value


def encode_pieces(pieces: Sequence[str] | Mapping[str, str]) -> str | bytes:
    """The JSON text of :func:`encode_json` for what holds text alone; quicker, since no number is looked for."""
    return encode_text(json.dumps(pieces, ensure_ascii=False))


def decode_json(stored: str | bytes, flags: str | bytes | None) -> Any:
    """The inverse of :func:`encode_json`."""
    value = _JSON.decode(decode_text(stored))
    for path, flag in _JSON.decode(decode_text(flags)) if flags is not None else []:
        if not path:
            return FLAGS[flag]
        target = value
        for part in path[:-1]:
            target = target[part]
        target[path[-1]] = FLAGS[flag]
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"a number that is not finite: {digits[:40]}")
    return number


_JSON = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
"""Other numbers than finite ones stand in the flags."""


def decode_pieces(stored: str | bytes) -> list[str]:
    """A list of texts that :func:`encode_pieces` wrote."""
    value = decode_json(stored, None)
    if not isinstance(value, list) or not all(isinstance(piece, str) for piece in value):
        raise ValueError("a list of texts expected")
    return value


def check_whole(*values: Any) -> None:
    """Raises ValueError for what is no whole number: a column of SQLite holds whatever is put into it."""
    _check(values, int, "whole number")


def check_real(*values: Any) -> None:
    """Raises ValueError for what is no number; None is allowed."""
    _check([value for value in values if value is not None], (int, float), "number")


def _check(values: Sequence[Any], kind: Any, name: str) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, kind):
            raise ValueError(f"{name} expected, not {str(value)[:40]!r}")


def encode_array(array: Any, kind: str) -> tuple[str, str, bytes]:
    """(kind, shape as JSON, blob) of an array; ``kind`` is ``float32`` or ``int32``. NaN and infinities keep their bits."""
    values = np.asarray(array)
    # An empty list is float64 to numpy, so only what holds something is checked for being of the same kind.
    fixed = values.astype(_DTYPES[kind], casting="same_kind" if values.size else "unsafe")
    return kind, str(list(values.shape)), fixed.tobytes()


def decode_array(kind: str, shape: str, blob: bytes) -> np.ndarray:
    """The inverse of :func:`encode_array`; a new array that the caller may change."""
    if kind not in _DTYPES or not isinstance(blob, bytes):
        raise ValueError(f"unknown array kind {kind!r}")
    return np.frombuffer(blob, dtype=_DTYPES[kind]).astype(kind).reshape(json.loads(shape))
