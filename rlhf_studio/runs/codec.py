"""One codec for each kind of record: a :class:`RecordTable` says once, column by column, how a record becomes a row and comes back.

Whoever writes and whoever reads use the same declaration, and a test compares it with the tables that the schema makes. What an older
database does not have yet, a table or a column, is read as missing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rlhf_studio.runs.values import (
    check_real,
    check_whole,
    decode_array,
    decode_json,
    decode_numbers,
    decode_pieces,
    decode_text,
    encode_array,
    encode_json,
    encode_numbers,
    encode_pieces,
    encode_text,
)

Record = TypeVar("Record")
Fields = dict[str, Any]


@dataclass(frozen=True)
class FieldCodec:
    """Some fields of a record, the columns that hold them, and the two functions between them.

    ``encode`` takes the values of the fields and returns the values of the columns. ``decode`` does the reverse. With one field and one
    column, both take and return a single value; otherwise a sequence of values.
    """

    fields: tuple[str, ...]
    columns: tuple[str, ...]
    encode: Callable[..., Any]
    decode: Callable[..., Any]

    @property
    def single(self) -> bool:
        """Whether it is one field in one column."""
        return len(self.fields) == len(self.columns) == 1


def converted(name: str, encode: Callable[[Any], Any], decode: Callable[[Any], Any]) -> FieldCodec:
    """A field in a column of the same name; ``encode`` and ``decode`` convert its value."""
    return FieldCodec((name,), (name,), encode, decode)


def plain(name: str) -> FieldCodec:
    """A field that SQLite stores without conversion, such as a name that the program made."""
    return converted(name, _same, _same)


def _same(value: Any) -> Any:
    return value


def text(name: str) -> FieldCodec:
    """Any text, also one with half of a surrogate pair."""
    return converted(name, encode_text, decode_text)


def integer(name: str) -> FieldCodec:
    """A whole number, or None."""
    return converted(name, _same, _integer)


def _integer(stored: Any) -> Any:
    if stored is not None and type(stored) is not int:  # asked here first: most numbers are right
        check_whole(stored)
    return stored


def real(name: str) -> FieldCodec:
    """A finite number, or None."""
    return converted(name, _same, _real)


def _real(stored: Any) -> Any:
    if stored is not None and type(stored) is not float:
        check_real(stored)
    return stored


def truth(name: str, unknown: int | None = None) -> FieldCodec:
    """True or False as 1 or 0; None as ``unknown``."""
    return converted(
        name, lambda value: unknown if value is None else int(value), lambda stored: None if stored in (None, unknown) else bool(stored)
    )


def choice(name: str, allowed: Sequence[Any], otherwise: Any = None) -> FieldCodec:
    """One of a few values. ``otherwise`` is the value where nothing is stored."""

    def decode(stored: Any) -> Any:
        if stored is None and otherwise is not None:
            return otherwise
        if stored not in allowed:
            raise ValueError(f"unknown {name} {stored!r}")
        return stored

    return converted(name, _same, decode)


def numbers(*names: str, flags: str) -> FieldCodec:
    """Numbers, each in its own column. The column ``flags`` says which of them are not finite."""

    def encode(*values: float | None) -> Sequence[Any]:
        stored, stored_flags = encode_numbers(dict(zip(names, values, strict=True)))
        return *stored, stored_flags

    def decode(*stored: Any) -> Sequence[Any]:
        return tuple(decode_numbers(dict(zip(names, stored[:-1], strict=True)), stored[-1]).values())

    return FieldCodec(names, (*names, flags), encode, decode)


def texts(name: str, empty: Any = None) -> FieldCodec:
    """A list of texts. Where ``empty`` is given, it stands for an empty list, which is stored as NULL."""

    def encode(value: Sequence[str]) -> Any:
        return encode_pieces(value) if value or empty is None else None

    return converted(name, encode, lambda stored: empty if stored is None and empty is not None else decode_pieces(stored))


def as_json(name: str, flags: str = "", *, read: Callable[[Any], Any] = _same, write: Callable[[Any], Any] | None = None) -> FieldCodec:
    """A value that JSON can hold, in one column. The column ``flags``, if there is one, says which numbers in it are not finite.

    ``write`` turns the field into plain JSON; None means that nothing is stored. ``read`` does the reverse.
    """

    def encode(value: Any) -> Any:
        plain_value = value if write is None else write(value)
        stored, stored_flags = (None, None) if plain_value is None and write is not None else encode_json(plain_value)
        return (stored, stored_flags) if flags else stored

    def decode(stored: Any, stored_flags: Any = None) -> Any:
        value = read(None if stored is None else decode_json(stored, stored_flags))
        return (value,) if flags else value

    return FieldCodec((name,), (name, flags) if flags else (name,), encode, decode)


def members(value: Any) -> Fields:
    """For :func:`as_json`: an object. Raises ValueError for anything else."""
    if not isinstance(value, dict):
        raise ValueError(f"names and values expected, not {type(value).__name__}")
    return value


def real_members(value: Any) -> dict[str, float]:
    """The same, with numbers alone."""
    check_real(*members(value).values())
    return value  # type: ignore[no-any-return]


class RecordTable(Generic[Record]):
    """The codec of one kind of record: its fields as the columns of a table.

    Args:
        name: the name of the table.
        make: makes the record; called with the fields by name.
        parts: the fields, in the order of the columns. A table may have more columns, its keys, which are given beside the record.
        later: whether databases of earlier versions lack the table. They then have no rows.
    """

    def __init__(self, name: str, make: Callable[..., Record], *parts: FieldCodec, later: bool = False):
        self.name, self.make, self.parts, self._later = name, make, parts, later
        self.columns = tuple(column for part in parts for column in part.columns)
        positions = [(part, self.columns.index(part.columns[0])) for part in parts]
        self._single = [(part.fields[0], position, part.decode) for part, position in positions if part.single]
        self._several = [(part, position, position + len(part.columns)) for part, position in positions if not part.single]

    def row(self, record: Any) -> list[Any]:
        """The values of :attr:`columns`. ``record`` may have more fields, or be of another type that has these fields."""
        values: list[Any] = []
        for part in self.parts:
            if part.single:
                values.append(part.encode(getattr(record, part.fields[0])))
            else:
                values += part.encode(*(getattr(record, name) for name in part.fields))
        return values

    def fields(self, row: Sequence[Any]) -> Fields:
        """The fields of a row, by name. Raises one of :data:`~rlhf_studio.runs.values.DAMAGE` for a row that this program did not write."""
        fields = {name: decode(row[position]) for name, position, decode in self._single}
        for part, first, end in self._several:
            fields.update(zip(part.fields, part.decode(*row[first:end]), strict=True))
        return fields

    def insert(self, connection: sqlite3.Connection, records: Iterable[Any], *, or_else: str = "", **keys: Any) -> int:
        """Store records, each with the same ``keys``. Returns how many were stored.

        ``or_else`` says what happens to a row that is there already: REPLACE or IGNORE.
        """
        columns = (*keys, *self.columns)
        marks = ", ".join("?" * len(columns))
        return connection.executemany(
            f"INSERT {f'OR {or_else} ' if or_else else ''}INTO {self.name} ({', '.join(columns)}) VALUES ({marks})",
            [(*keys.values(), *self.row(record)) for record in records],
        ).rowcount

    def select(
        self, connection: sqlite3.Connection, rest: str = "", parameters: Sequence[Any] = (), keys: Sequence[str] = ()
    ) -> Iterator[tuple[tuple[Any, ...], Fields]]:
        """(values of the columns ``keys``, fields) of rows; ``rest`` is what follows the name of the table in SQL."""
        known = columns_of(connection, self.name)
        if not known and self._later:
            return
        columns = [*keys, *(column if column in known or not known else "NULL" for column in self.columns)]
        for row in connection.execute(f"SELECT {', '.join(columns)} FROM {self.name} {rest}", parameters).fetchall():
            yield row[: len(keys)], self.fields(row[len(keys) :])

    def records(self, connection: sqlite3.Connection, rest: str = "", parameters: Sequence[Any] = ()) -> list[Record]:
        """Rows as records; the arguments are those of :meth:`select`."""
        return [self.make(**fields) for _, fields in self.select(connection, rest, parameters)]

    def first(self, connection: sqlite3.Connection, rest: str = "", parameters: Sequence[Any] = ()) -> Record | None:
        """The first of these records; None when there is none."""
        return next(iter(self.records(connection, f"{rest} LIMIT 1", parameters)), None)


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """The names of a table's columns; empty when the table does not exist."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


# --- arrays --------------------------------------------------------------------------------------------------------------------

StoredArray = tuple[str | bytes, str, str, bytes]
"""(name, kind, shape, data): the columns of every table with arrays."""
ARRAY_COLUMNS = "name, kind, shape, data"


@dataclass(frozen=True)
class Arrays:
    """The arrays of a record, each in a row of its own.

    Attributes:
        of: the kind of each field that is an array: ``float32``, ``int32`` or ``bool``.
        named: fields that hold float32 arrays by name -> what their names begin with as rows, so that none is mistaken for another.
        optional: those of ``of`` that may be None.
    """

    of: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()

    def encode(self, record: Any) -> Iterator[StoredArray]:
        """The rows of a record."""
        for name, kind in self.of.items():
            if (array := getattr(record, name)) is not None:
                yield name, *encode_array(array, "int32" if kind == "bool" else kind)
        for name, prefix in self.named.items():
            for key, array in getattr(record, name).items():
                yield encode_text(prefix + key), *encode_array(array, "float32")

    def decode(self, rows: Iterable[StoredArray]) -> Fields:
        """The fields of a record from its rows. Raises KeyError where one is missing."""
        arrays = {decode_text(name): decode_array(kind, shape, data) for name, kind, shape, data in rows}
        fields: Fields = {}
        for name, kind in self.of.items():
            array = arrays.pop(name, None) if name in self.optional else arrays.pop(name)
            fields[name] = array.astype(bool) if kind == "bool" and array is not None else array
        for name, prefix in self.named.items():
            fields[name] = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        return fields


def packed(header: Any, rows: Sequence[StoredArray], length_bytes: int = 8) -> bytes:
    """JSON and arrays in one blob: the length of the header, the header, and the arrays one after the other.

    The header holds the names and sizes of the arrays.
    """
    sizes = [[decode_text(name), kind, shape, len(data)] for name, kind, shape, data in rows]
    header_text, flags = encode_json({**header, "arrays": sizes})
    header_parts = [decode_text(header_text), None if flags is None else decode_text(flags)]
    header_bytes = json.dumps(header_parts, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(header_bytes).to_bytes(length_bytes, "little") + header_bytes + b"".join(data for _, _, _, data in rows)


def unpacked(blob: bytes, length_bytes: int = 8) -> tuple[Fields, list[StoredArray]]:
    """The inverse of :func:`packed`."""
    end = length_bytes + int.from_bytes(blob[:length_bytes], "little")
    header = decode_json(*json.loads(decode_text(blob[length_bytes:end])))
    rows: list[StoredArray] = []
    for name, kind, shape, size in header.pop("arrays"):
        rows.append((name, kind, shape, blob[end : end + size]))
        end += size
    return header, rows
