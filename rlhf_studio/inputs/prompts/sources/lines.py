"""Rows of CSV, JSON Lines and text files, plain or gzip-compressed, with errors that name the row.

The standard library reads all of them as the text they are: nothing is guessed into numbers or dates. A file is read line by
line and no line beyond the limit is ever whole in memory, so a huge row and an archive that unpacks to terabytes are both
noticed early.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

from rlhf_studio.inputs.prompts.errors import SOURCE, NoColumn, PromptsError, no_column
from rlhf_studio.inputs.prompts.sources.rows import MAX_ROW_CHARACTERS, MOST_COLUMNS, RawRow, RowSource, entries_of, value_at
from rlhf_studio.language import S_

TABLES = {".csv": ",", ".tsv": "\t"}
"""Endings of files with a header, and what stands between their columns."""
LINE_COLUMN = "text"
"""What the only column of a text file is called where it is read as a table."""
MAX_BLANK_CHARACTERS = 2_000_000
START_CHARACTERS, PIECE_CHARACTERS = 4_096, 65_536
BETWEEN_OBJECTS = re.compile(r"[\s,]*")
"""What may stand between the objects of an array."""


def open_lines(path: Path, kind: str, columns: dict[str, str], usual: tuple[str, ...] = ()) -> RowSource:
    """The rows of a file; ``kind`` is ``.csv``, ``.tsv``, ``.txt``, ``.json`` for JSON Lines or one JSON array, or ``.jsonl``.

    Where a column called "text" is a usual one, a text file is a table with that column alone.
    Drawing rows raises :class:`PromptsError` for what is not UTF-8, not in the format, or has no such column.
    """
    names: list[str] = []
    return RowSource(_guarded(path, kind, columns, usual, names), names)


def _guarded(path: Path, kind: str, columns: dict[str, str], usual: tuple[str, ...], names: list[str]) -> Generator[RawRow, None, None]:
    with _text_of(path) as file:
        lines = Lines(file, line_is_row=kind not in TABLES)
        if kind in TABLES:
            yield from _csv_rows(lines, TABLES[kind], columns, usual, names)
        elif kind == ".txt":
            yield from _text_rows(lines, usual, names)
        else:
            objects = _array_objects(file) if kind == ".json" and _begins_with_bracket(file) else _line_objects(lines)
            yield from _json_rows(objects, columns, usual, names)


def text_lines(path: Path, most: int) -> Generator[tuple[int, str], None, None]:
    """(number from 1, line) of a text file of any other kind, plain or gzip-compressed, with at most ``most`` characters in each.

    Raises :class:`PromptsError` as :func:`open_lines` does, and for what is no file.
    """
    if not os.path.isfile(path):
        what = S_("is no file") if os.path.exists(path) else S_("does not exist")
        raise PromptsError(SOURCE, f"{path} {what}")
    with _text_of(path) as file:
        lines = Lines(file, line_is_row=True, most=most)
        for line in lines:
            yield lines.number, line


@contextmanager
def _text_of(path: Path) -> Iterator[TextIOWrapper]:
    """The opened file; every problem while it is read becomes a :class:`PromptsError`."""
    try:
        with _opened(path) as binary, TextIOWrapper(binary, encoding=_encoding(path), newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise PromptsError(SOURCE, f"{path.name} is damaged: its gzip compression breaks off") from None
    except OSError as error:
        raise PromptsError(SOURCE, f"{path.name} cannot be read: {error.strerror or error}") from None


def _encoding(path: Path) -> str:
    """UTF-8, or UTF-16 where the file begins with its mark; without the mark nothing tells it from other text but its zeros."""
    with _opened(path) as file:
        start = file.read(2)
    if len(start) == 2 and 0 in start:
        raise PromptsError(SOURCE, f"{path.name} is no UTF-8 text, but perhaps UTF-16 without a mark at its start; save the file as UTF-8")
    return "utf-16" if start in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8-sig"


def _opened(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


class Lines:
    """The lines of a text file. Stops at a row that is too long, without reading it whole, and at endless blank lines.

    ``number`` is that of the line given last, from 1. A CSV row can go over many lines: its reader says when one is complete.
    """

    def __init__(self, file: TextIOWrapper, *, line_is_row: bool, most: int = 0):
        self._file, self._line_is_row, self._most = file, line_is_row, most or MAX_ROW_CHARACTERS
        self.number = 0
        self._row_characters = 0
        self._blank_characters = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(self._most + 1):
            self.number += 1
            if self._line_is_row:
                self.row_done()
            self._row_characters += len(line)
            if self._row_characters > self._most:
                raise too_long(self.number, self._most)
            self._blank_characters = 0 if line.strip() else self._blank_characters + len(line)
            if self._blank_characters > MAX_BLANK_CHARACTERS:
                raise PromptsError(SOURCE, f"there is nothing but blank lines before row {self.number}; this is no list of texts")
            yield line

    def row_done(self) -> None:
        """The next line begins a new row."""
        self._row_characters = 0


def check_first_rows(folder: Path, columns: Iterable[str] = ()) -> None:
    """Refuse a folder in which a text file's first row is too long, or a table has two of the ``columns`` under one name.

    The library that reads folders takes whole lines into memory, however long, and gives the second of two columns another name.
    Raises :class:`PromptsError` naming the file.
    """
    for path in filter(Path.is_file, entries_of(folder)):
        kind = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
        if kind not in (*TABLES, ".txt", ".jsonl"):
            continue
        try:
            with _opened(path) as file:
                start = file.readline(4 * MAX_ROW_CHARACTERS + 1)  # UTF-8 has up to four bytes for a character
        except (EOFError, OSError, zlib.error):
            continue  # the reader itself says what is wrong with it
        if len(start) > 4 * MAX_ROW_CHARACTERS and b"\n" not in start and b"\r" not in start:
            raise PromptsError(SOURCE, f"{path.name}: {too_long(1).message}")
        if kind in TABLES:
            header = next(csv.reader([start.decode("utf-8-sig", "replace")], delimiter=TABLES[kind]), [])
            try:
                refuse_doubled(header, {}, columns)
            except PromptsError as error:
                raise PromptsError(SOURCE, f"{path.name}: {error.message}") from None


def too_long(number: int, most: int = 0) -> PromptsError:
    """The error for a row with more characters than ``most``, or than any prompt should have."""
    return PromptsError(SOURCE, f"row {number} is longer than {most or MAX_ROW_CHARACTERS:,} characters; use shorter texts")


def _text_rows(lines: Lines, usual: tuple[str, ...], names: list[str]) -> Generator[RawRow, None, None]:
    names.extend(name for name in usual if name == LINE_COLUMN)
    for line in lines:
        text = line.rstrip("\r\n")
        yield RawRow(lines.number, [text if name == LINE_COLUMN else None for name in usual] or [text])


def _csv_rows(
    lines: Lines, between: str, columns: dict[str, str], usual: tuple[str, ...], names: list[str]
) -> Generator[RawRow, None, None]:
    reader = csv.reader(lines, delimiter=between)
    try:
        header = next(reader, None)
        if header is None:
            return
        names.extend(header)
        for field, column in columns.items():
            if column not in header:
                error = no_column(field, column, header)
                hint = S_("; it seems to have semicolons between its columns: save it with commas") if ";" in header[0] else ""
                raise NoColumn(field, error.message + hint)
        refuse_doubled(header, columns, usual)
        positions = [header.index(column) if column in header else None for column in (*columns.values(), *usual)]
        most = max((position for position in positions if position is not None), default=0)
        lines.row_done()
        for number, row in enumerate(reader, start=2):
            lines.row_done()
            if len(row) > most:
                yield RawRow(number, [None if position is None else row[position] for position in positions])
            elif row:
                message = S_(f"row {number} has {len(row)} of {len(header)} columns and so no {header[most]!r}")
                raise PromptsError(SOURCE, message)
    except csv.Error as error:
        raise PromptsError(SOURCE, f"row {reader.line_num} is not valid CSV: {error}") from None


def refuse_doubled(header: list[str], columns: dict[str, str], usual: Iterable[str]) -> None:
    """Raises :class:`PromptsError` where a column that is to be read (:class:`SourceRequest` says which) is there twice."""
    for field, column in (*columns.items(), *((SOURCE, name) for name in usual)):
        if header.count(column) > 1:
            message = S_(f"{header.count(column)} columns are called {column!r}, so nothing tells which one is meant")
            raise PromptsError(field, f"{message}; give each column of the file a name of its own")


def _json_rows(
    objects: Iterator[tuple[int, Any]], columns: dict[str, str], usual: tuple[str, ...], names: list[str]
) -> Generator[RawRow, None, None]:
    requested = [*columns.values(), *usual]
    for number, row in objects:
        if not isinstance(row, dict):
            raise PromptsError(SOURCE, f'row {number} is not an object; each should be like {{"{requested[0]}": "text"}}')
        cells = named_cells(row, number, columns, names)
        names.extend([key for key in row if key not in names][: MOST_COLUMNS - len(names)])
        yield RawRow(number, [*cells, *(row.get(column) for column in usual)])


def named_cells(row: dict[str, Any], number: int, columns: dict[str, str], known: list[str]) -> list[Any]:
    """The cells of the columns that settings name. Raises :class:`PromptsError`; ``known``: the columns of earlier rows."""
    cells = []
    for field, column in columns.items():
        try:
            cells.append(value_at(row, column))
        except KeyError:
            raise PromptsError(field, f"row {number} has no {column!r}") if known else no_column(field, column, list(row)) from None
    return cells


def _line_objects(lines: Lines) -> Iterator[tuple[int, Any]]:
    """(line, what it holds) of JSON Lines."""
    first = True
    for line in lines:
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                hint = S_("; a JSON array must be rewritten as one object a line") if first and line.startswith("[") else ""
                raise PromptsError(SOURCE, f"row {lines.number} is not valid JSON{hint}") from None
            first = False
            yield lines.number, row


def _begins_with_bracket(file: TextIOWrapper) -> bool:
    start = file.read(START_CHARACTERS).lstrip()
    file.seek(0)
    return start.startswith("[")


def _array_objects(file: TextIOWrapper) -> Iterator[tuple[int, Any]]:
    """(place from 1, object) of one JSON array, of which only a piece and one object are in memory at a time."""
    decoder = json.JSONDecoder()
    text, number = file.read(START_CHARACTERS).lstrip()[1:], 0
    while True:
        position = 0
        while rest := BETWEEN_OBJECTS.match(text, position):
            position = rest.end()
            if position == len(text) or text[position] == "]":
                break
            try:
                row, position = decoder.raw_decode(text, position)
            except (ValueError, RecursionError):
                break
            number += 1
            yield number, row
        text = text[position:]
        if text.startswith("]"):
            return
        piece = file.read(PIECE_CHARACTERS)
        if not piece or len(text) > MAX_ROW_CHARACTERS:
            long = S_(f", or longer than {MAX_ROW_CHARACTERS:,} characters") if piece else ""
            raise PromptsError(SOURCE, f"row {number + 1} is not valid JSON{long}")
        text += piece


def _not_utf8(path: Path, error: UnicodeDecodeError) -> PromptsError:
    """Looks once more for the row, since the decoder works through blocks of many lines."""
    row, byte = 0, error.object[error.start]
    with suppress(EOFError, OSError, zlib.error), _opened(path) as file:  # behind that row it may be damaged in other ways
        while line := file.readline(4 * MAX_ROW_CHARACTERS):
            row += 1
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as problem:
                byte = line[problem.start]
                break
    return PromptsError(SOURCE, f"row {row} is not UTF-8 text (byte 0x{byte:02x}); save the file as UTF-8")
