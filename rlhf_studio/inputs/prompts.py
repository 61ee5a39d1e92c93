"""Reading prompts from CSV, JSON Lines and text files, row by row, with errors that name the row.

The standard library reads all of them as the text they are: nothing is guessed into numbers or dates, and a huge row is
noticed before it is in memory.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.bundled import BUNDLED, resolve

MAX_ROW_CHARACTERS = 100_000
FORMATS = (".csv", ".jsonl", ".json", ".txt")


class PromptsError(ValueError):
    """The prompts cannot be read. ``field`` is the dotted name of the setting to blame."""

    def __init__(self, field: str, message: str):
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


@dataclass(frozen=True)
class PromptRow:
    """One prompt for the preview; ``tokens`` is None when no tokenizer is at hand."""

    text: str
    tokens: int | None


@dataclass(frozen=True)
class Prompts:
    """The prompts in file order, and the reference text of each when there is a column of them."""

    texts: list[str]
    references: list[str] | None = None

    def __len__(self) -> int:
        return len(self.texts)


def read_prompts(data: DataConfig) -> Prompts:
    """At most ``data.max_prompts`` prompts; rows with a blank prompt are left out.

    Raises :class:`PromptsError` for a file that is missing, empty, not UTF-8, has no such column, or holds something else than text.
    """
    rows = list(islice(_iterate(data), data.max_prompts))
    if not rows:
        raise PromptsError("data.prompts", f"{data.prompts} holds no prompts")
    return Prompts([row[0] for row in rows], [row[1] for row in rows] if data.reference_column else None)


def preview_prompts(data: DataConfig, count: int = 5, tokenizer: Path | None = None) -> list[PromptRow]:
    """The first ``count`` prompts, with token counts when ``tokenizer`` is a readable tokenizer.json. Raises :class:`PromptsError`."""
    texts = [row[0] for row in islice(_iterate(data), min(count, data.max_prompts))]
    if not texts:
        raise PromptsError("data.prompts", f"{data.prompts} holds no prompts")
    counts = count_tokens(texts, tokenizer)
    return [PromptRow(text, None if counts is None else counts[row]) for row, text in enumerate(texts)]


def count_tokens(texts: list[str], tokenizer: Path | None) -> list[int] | None:
    """Tokens of each text, or None when there is no tokenizer.json that this library can read."""
    if tokenizer is None or not tokenizer.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        loaded = Tokenizer.from_file(str(tokenizer))
    except Exception:  # noqa: BLE001 - the library raises bare Exception for every kind of bad file; the model check reports it
        return None
    loaded.no_truncation()
    loaded.no_padding()
    return [len(encoding.ids) for encoding in loaded.encode_batch(texts, add_special_tokens=True)]


def _iterate(data: DataConfig) -> Iterator[list[str]]:
    """Each prompt, and its reference text when there is one; every problem on the way becomes a :class:`PromptsError`."""
    path = _existing_file(data.prompts)
    if data.reference_column and path.suffix.lower() == ".txt":
        raise PromptsError("data.reference_column", "a text file has no columns; leave this empty, or use CSV or JSON Lines")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for row in _rows(file, path.suffix.lower(), data):
                if row[0].strip():
                    yield row
    except UnicodeDecodeError as error:
        raise PromptsError("data.prompts", f"is not UTF-8 text (byte 0x{error.object[error.start]:02x}); save the file as UTF-8") from None
    except OSError as error:
        raise PromptsError("data.prompts", f"cannot be read: {error.strerror or error}") from None


def _existing_file(name: str) -> Path:
    if name.startswith("bundled/") and name not in BUNDLED:
        known = ", ".join(bundled for bundled in BUNDLED if "prompts" in bundled)
        raise PromptsError("data.prompts", f"there is no {name}; there is {known}")
    path = Path(resolve(name))
    if not os.path.exists(path):  # the os.path functions answer False for names that no file can have, where pathlib may raise
        raise PromptsError("data.prompts", f"there is no file {name}")
    if not os.path.isfile(path):
        raise PromptsError("data.prompts", f"{name} is not a file")
    if path.suffix.lower() not in FORMATS:
        raise PromptsError("data.prompts", f"the ending {path.suffix or '(none)'} is not known; use one of {', '.join(FORMATS)}")
    return path


def _rows(file: TextIO, suffix: str, data: DataConfig) -> Iterator[list[str]]:
    columns = {"data.column": data.column} | ({"data.reference_column": data.reference_column} if data.reference_column else {})
    if suffix == ".csv":
        yield from _csv_rows(file, columns)
    elif suffix == ".txt":
        for number, line in _lines(file):
            yield [_valid_text(line.rstrip("\r\n"), number)]
    else:
        yield from _json_rows(file, columns)


def _lines(file: TextIO) -> Iterator[tuple[int, str]]:
    """(row number from 1, line). Stops at a row too long to be a prompt, without reading it whole."""
    number = 0
    while line := file.readline(MAX_ROW_CHARACTERS + 1):
        number += 1
        if len(line) > MAX_ROW_CHARACTERS:
            raise PromptsError(
                "data.prompts", f"row {number} is longer than {MAX_ROW_CHARACTERS:,} characters; a prompt should be a few sentences"
            )
        yield number, line


def _csv_rows(file: TextIO, columns: dict[str, str]) -> Iterator[list[str]]:
    reader = csv.reader(line for _, line in _lines(file))
    try:
        header = next(reader, None)
        if header is None:
            return
        for field, column in columns.items():
            if column not in header:
                raise _no_column(field, column, header)
        places = [header.index(column) for column in columns.values()]
        for number, row in enumerate(reader, start=2):
            if len(row) > max(places):
                yield [_valid_text(row[place], number) for place in places]
            elif row:
                raise PromptsError(
                    "data.prompts", f"row {number} has {len(row)} of {len(header)} columns and so no {header[max(places)]!r}"
                )
    except csv.Error as error:
        raise PromptsError("data.prompts", f"row {reader.line_num} is not valid CSV: {error}") from None


def _json_rows(file: TextIO, columns: dict[str, str]) -> Iterator[list[str]]:
    first = True
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            hint = "; a JSON array must be rewritten as one object a line" if first and line.startswith("[") else ""
            raise PromptsError("data.prompts", f"row {number} is not valid JSON{hint}") from None
        if not isinstance(row, dict):
            raise PromptsError(
                "data.prompts", f'row {number} is not an object; each line should be like {{"{columns["data.column"]}": "text"}}'
            )
        for field, column in columns.items():
            if column not in row:
                raise _no_column(field, column, list(row)) if first else PromptsError(field, f"row {number} has no {column!r}")
            if not isinstance(row[column], str):
                raise PromptsError(field, f"row {number} holds {type(row[column]).__name__} in {column!r}, not text")
        first = False
        yield [_valid_text(row[column], number) for column in columns.values()]


def _no_column(field: str, column: str, columns: list[str]) -> PromptsError:
    names = ", ".join(name[:40] for name in columns[:12]) + (", ..." if len(columns) > 12 else "")
    return PromptsError(field, f"there is no column {column!r}; the columns are: {names or '(none)'}")


def _valid_text(text: str, number: int) -> str:
    """Refuses half of a surrogate pair: no tokenizer can encode it, and the run would fail much later."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise PromptsError("data.prompts", f"row {number} holds half a character (a lone surrogate)") from None
    return text
