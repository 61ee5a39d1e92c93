"""One line of a log. Every field is checked, and each error names the line and the field."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NoReturn

import numpy as np

from rlhf_studio.analysis.logs.shape import KINDS, MOST_DEPTH, MOST_TEXT, OTHER_NAMES, SPECIAL
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.language import S_
from rlhf_studio.runs.values import LARGEST_FLOAT32
from rlhf_studio.visible import visible

MOST_MEMBERS = 1000
_CONTAINERS = {list, dict}
MOST_DIGITS = 1000  # of a whole number: no float64 has as many


class LogLine:
    """The fields of one line. Each method raises :class:`ConfigError` that names the line and the field.

    Attributes:
        number: of the line in its file, from 1.
        kind: one of :data:`~rlhf_studio.analysis.logs.shape.KINDS`.
    """

    def __init__(self, number: int, data: bytes):
        self.number = number
        self.fields = self._object(data)
        self.kind: str = self.fields.get("kind", "rollout")
        if self.kind not in KINDS:
            self.fail("kind", f"{_short(self.kind)} is none of {', '.join(KINDS)}; leave it out for a rollout")

    def _object(self, data: bytes) -> dict[str, Any]:
        try:
            return read_object(data)
        except ValueError as error:
            self.fail("", str(error))

    def fail(self, field: str, message: str) -> NoReturn:
        """Raise the error for a field of this line, or for the whole line."""
        place = f"line {self.number}"  # as LINE of sources.py has it
        raise ConfigError([Problem(f"{place}, {plain_name(field)}" if field else place, message)])

    def has(self, name: str) -> bool:
        """Whether the line says anything about a field: ``null`` says that it is not known."""
        return self.fields.get(name) is not None

    def missing(self, name: str, advice: str) -> NoReturn:
        """Raise the error for a missing field, with ``advice``. It also names a field of the line whose name looks like the missing one."""
        other = next((given for given in self.fields if given != name and meant(given, [name])), "")
        self.fail(name, "; ".join([S_("it is missing"), advice] + ([S_(f"if that is {_short(other)}, call it {name}")] if other else [])))

    def whole_number(self, name: str, most: int, least: int = 0) -> int | None:
        """A whole number; None when it is not given."""
        value = self.fields.get(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            self.fail(name, f"{_short(value)} is not a whole number from {least} to {most}")
        return value

    def number_of(self, name: str) -> float | None:
        """A number, which may be NaN or infinite; None when it is not given."""
        value = self.fields.get(name)
        return None if value is None else self._number(name, value)

    def _number(self, field: str, value: Any) -> float:
        if isinstance(value, str) and value in SPECIAL:
            return SPECIAL[value]
        if type(value) not in (int, float):
            self.fail(field, f"{_short(value)} is not a number")
        try:
            return float(value)
        except OverflowError:
            self.fail(field, "the number is too large")

    def flag(self, name: str) -> bool | None:
        """True or false; None when it is not given."""
        value = self.fields.get(name)
        if value is not None and type(value) is not bool:
            self.fail(name, f"{_short(value)} is neither true nor false")
        return value

    def text(self, name: str) -> str | None:
        """A text; None when it is not given."""
        value = self.fields.get(name)
        if value is not None and not (isinstance(value, str) and len(value) <= MOST_TEXT):
            self.fail(name, f"it must be a text of at most {MOST_TEXT:,} characters")
        return value

    def texts(self, name: str, most: int) -> list[str] | None:
        """A list of texts; None when it is not given."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > most:
            self.fail(name, f"it must be a list of at most {most:,} texts")
        if not set(map(type, value)) <= {str}:
            index = next(index for index, item in enumerate(value) if type(item) is not str)
            self.fail(f"{name}[{index}]", f"{_short(value[index])} is not a text")
        if sum(map(len, value)) > MOST_TEXT:
            self.fail(name, f"it holds more than {MOST_TEXT:,} characters")
        return value

    def members(self, name: str) -> dict[str, Any]:
        """An object; an empty one when it is not given."""
        value = self.fields.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fail(name, f"it is {_type(value)} and must be an object with names and values")
        return value

    def numbers(self, name: str) -> dict[str, float]:
        """An object of numbers; an empty one when it is not given. A member that is ``null`` is left out."""
        members = self.members(name)
        if len(members) > MOST_MEMBERS:
            self.fail(name, f"it has more than {MOST_MEMBERS} members")
        return {key: self._number(f"{name}.{key[:60]}", value) for key, value in members.items() if value is not None}

    def pieces(self, name: str) -> dict[int, str]:
        """An object of texts by token id."""
        texts: dict[int, str] = {}
        for key, piece in self.members(name).items():
            if not (key.isascii() and key.isdecimal() and len(key) < 10) or not isinstance(piece, str):
                self.fail(name, f"{_short(key)}: {_short(piece)} is not a token id and its text")
            texts[int(key)] = piece
        return texts

    def flags(self, name: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """As :meth:`reals`, where each number says yes or no: true and false are 1 and 0."""
        value = self.fields.get(name)
        if isinstance(value, list):
            value = [int(item) if type(item) is bool else item for item in value]
        return self.reals(name, shape, {name: value})

    def reals(self, name: str, shape: tuple[int, ...] | None = None, of: dict[str, Any] | None = None) -> np.ndarray | None:
        """A list of numbers as float32, NaN where a number is ``null``; None when it is not given. Lists of lists for two dimensions.

        Args:
            shape: what it must have; -1 takes any length. None: any list of numbers.
            of: the object that the field is in, where that is not the line itself.
        """
        value = (self.fields if of is None else of).get(name)
        if value is None:
            return None
        numbers = self._array(name, value, np.float64, shape)
        if np.any(np.abs(numbers[np.isfinite(numbers)]) > LARGEST_FLOAT32):
            self.fail(name, f"a number is beyond {LARGEST_FLOAT32:.3g}, the largest of float32")
        return numbers.astype(np.float32)

    def ids(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray | None:
        """The same for token ids, as int32."""
        value = self.fields.get(name)
        if value is None:
            return None
        numbers = self._array(name, value, np.int64, shape)
        if np.any(numbers < 0) or np.any(numbers > 2**31 - 1):
            self.fail(name, "a number is below 0 or too large for a token id")
        return numbers.astype(np.int32)

    def _array(self, name: str, value: Any, kind: type[np.generic], shape: tuple[int, ...] | None) -> np.ndarray:
        dimensions = 1 if shape is None else len(shape)
        rows = [value] if dimensions == 1 else value
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            self.fail(name, "it must be a list of numbers" if dimensions == 1 else "it must be a list of lists of numbers")
        if len({len(row) for row in rows}) > 1:
            self.fail(name, "its rows are not all of the same length")
        try:
            table = [np.array(self._plain(name, row, kind), dtype=kind) for row in rows]
        except OverflowError:
            self.fail(name, "a number is too large")
        numbers = table[0] if dimensions == 1 else np.array(table, dtype=kind).reshape(len(rows), -1 if rows and rows[0] else 0)
        if shape is not None and any(want not in (-1, have) for want, have in zip(shape, numbers.shape, strict=True)):
            expected = " × ".join(S_("any number") if want < 0 else str(want) for want in shape)
            self.fail(name, f"it has {' × '.join(map(str, numbers.shape))} numbers, and this line needs {expected}")
        return numbers

    def _plain(self, name: str, row: list[Any], kind: type[np.generic]) -> list[Any]:
        types = set(map(type, row))
        if types <= ({int} if kind is np.int64 else {int, float}):
            return row
        if kind is np.int64:
            index = next(index for index, item in enumerate(row) if type(item) is not int)
            self.fail(f"{name}[{index}]", f"{_short(row[index])} is not a whole number")
        return [math.nan if item is None else self._number(f"{name}[{index}]", item) for index, item in enumerate(row)]


def read_object(data: bytes, most_depth: int = MOST_DEPTH) -> dict[str, Any]:
    """The JSON object that a line holds. Raises ValueError whose message is for people."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_named_once, parse_int=_bounded_integer)
    except UnicodeDecodeError as error:
        raise ValueError(S_(f"it is not UTF-8 text (byte {error.start + 1} of the line)")) from error
    except _Unusable:
        raise
    except RecursionError as error:
        raise ValueError(S_(f"its lists and objects lie more than {most_depth} deep inside each other")) from error
    except ValueError as error:
        why = str(error)[:120]
        raise ValueError(S_(f"it is not JSON ({why}); each line must be one object such as {{'step': 1, ...}}")) from error
    if not isinstance(value, dict):
        raise ValueError(S_(f"it is {_type(value)}; each line must be one object such as {{'step': 1, ...}}"))
    if _depth(value, most_depth) > most_depth:
        raise ValueError(S_(f"its lists and objects lie more than {most_depth} deep inside each other"))
    return value


class _Unusable(ValueError):
    """JSON that says nothing certain; the message is for people."""


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise _Unusable(f"{_short(name)} stands twice in one object")
        members[name] = value
    return members


def _bounded_integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise _Unusable(f"a number has {len(digits):,} digits; the most are {MOST_DIGITS}")
    return int(digits)


def _depth(value: Any, most_depth: int) -> int:
    """How deep lists and objects lie inside each other; the JSON reader has bounded it already."""
    level: list[Any] = [value]
    depth = 0
    while level and depth <= most_depth:
        depth += 1
        inner: list[Any] = []
        for container in level:
            items = container.values() if isinstance(container, dict) else container
            if not _CONTAINERS.isdisjoint(map(type, items)):
                inner += [item for item in items if type(item) in _CONTAINERS]
        level = inner
    return depth


def _type(value: Any) -> str:
    number = S_("a number")
    names = {list: S_("a list"), str: S_("a text"), bool: S_("true or false"), int: number, float: number, dict: S_("an object")}
    return names.get(type(value), "null")


def _short(value: Any) -> str:
    return ascii(value)[:60]


def plain_name(name: str) -> str:
    """A name out of a file as part of a sentence: at most 100 characters, and nothing in it can steer a terminal."""
    return visible(name[:100], lines=False)


def meant(given: str, names: Iterable[str]) -> str:
    """The one of these field names that a person most likely meant by another; empty when it looks like none of them."""
    words = given.strip().lower().replace("-", "_")
    names = sorted(names)
    likely = next((name for name in names if words == name or words in OTHER_NAMES.get(name, ())), "")
    return likely or next(iter(get_close_matches(words, names, 1, 0.85)), "")
