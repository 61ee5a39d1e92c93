"""All rows of a source, filtered by their text. Whatever is left out is counted by its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.prompts.cells import BESIDE, PAIR, Prompt, beside_columns, fits, prompt_from
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.messages import key_of
from rlhf_studio.inputs.prompts.sources.opening import STALL_SECONDS, open_source
from rlhf_studio.inputs.prompts.sources.rows import RawRow, RowSource, SourceRequest, Tick, root_of, unused_note
from rlhf_studio.language import S_

MAX_BLANK_ROWS = 200_000
BLANK_PER_PROMPT = 10
MAX_BYTES = 500_000_000
"""The most memory that the prompts of a run may take. A packed file says nothing of it: 300 bytes of Parquet can hold gigabytes of text."""

NAMED = {"prompt": "column", "reference": "reference_column", "input": "input_column"}
"""Part of a prompt -> the setting that names its column."""

REASONS = {
    "blank": "{n} blank",
    "repeated": "{n} repeated",
    "few_characters": S_("{n} with fewer than {data.min_characters:,} characters"),
    "many_characters": S_("{n} with more than {data.max_characters:,} characters"),
    "few_tokens": S_("{n} with fewer than {data.min_prompt_tokens:,} tokens"),
    "many_tokens": S_("{n} with more than {data.max_prompt_tokens:,} tokens"),
}
"""Why a row is left out -> the words for it in a note."""

SETTINGS = {
    "blank": "data.column",
    "repeated": "data.drop_duplicates",
    "few_characters": "data.min_characters",
    "many_characters": "data.max_characters",
    "few_tokens": "data.min_prompt_tokens",
    "many_tokens": "data.max_prompt_tokens",
}
"""Why a row is left out -> the setting that a person would change."""


@dataclass(frozen=True, eq=False)  # so that the same object can be the key of a cache
class Prompts:
    """The prompts of a source in its order.

    Attributes:
        rows: what is left after the filters.
        left_out: number of rows left out, by reason (a key of :data:`REASONS`).
        columns: the source's column names.
        has_references: whether every prompt comes with a reference text.
        notes: one sentence each about the source, for a person.
        partial: only the first rows of the source are here; there may be more.
    """

    rows: list[Prompt]
    left_out: Counter[str] = field(default_factory=Counter)
    columns: list[str] = field(default_factory=list)
    has_references: bool = False
    partial: bool = False
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def texts(self) -> list[str]:
        return [row.text for row in self.rows]

    @property
    def answered(self) -> int:
        """Conversations whose last answer was left out."""
        return sum(row.answered for row in self.rows)

    @property
    def dialogues(self) -> Counter[str]:
        """Texts that were dialogues, by the way they are written."""
        return Counter(row.dialogue for row in self.rows if row.dialogue)

    @property
    def references(self) -> list[str] | None:
        return [row.reference for row in self.rows] if self.has_references else None


def read_prompts(
    data: DataConfig,
    *,
    limit: int | None = None,
    keep_bytes: int = MAX_BYTES,
    seconds: float = STALL_SECONDS,
    tick: Tick = lambda text: None,
) -> Prompts:
    """At most ``data.max_prompts`` prompts that pass the text filters; with ``limit``, from the first rows only.

    Args:
        keep_bytes: prompts beyond so much memory are read and checked like the others, but not kept.
        seconds: the longest wait for the next rows of a slow source.
        tick: called with its progress, as text.

    Raises :class:`PromptsError` for a source that is missing, empty, not readable, has no such column, or holds no text there, and for
    prompts that take more than :data:`MAX_BYTES`.
    """
    source_rows = _BoundedRows(data, open_source(source_request(data), limit=limit, seconds=seconds, tick=tick), keep_bytes)
    rows = list(_filtered(source_rows.filled(), data, source_rows.left_out))
    partial = source_rows.passed_over or (limit is not None and source_rows.rows_read >= limit)
    if not rows and not partial:
        raise nothing_left(data, source_rows.left_out)
    source = source_rows.source
    notes = [*source.notes, *unused_note(source.columns, source_rows.columns.values())]
    return Prompts(rows, source_rows.left_out, source.columns, bool(data.reference_column), partial, notes)


def nothing_left(data: DataConfig, left_out: Counter[str]) -> PromptsError:
    """The error for a source of which no row is left, at the setting that left out the most."""
    if not left_out:
        return PromptsError("data.prompts", f"{data.prompts} holds no prompts")
    worst = left_out.most_common(1)[0][0]
    return PromptsError(SETTINGS[worst], f"{data.prompts} holds no prompts that are left: {reasons(left_out, data)}")


def reasons(left_out: Counter[str], data: DataConfig) -> str:
    """``3 blank, 2 repeated``."""
    return ", ".join(REASONS[reason].format(n=f"{left_out[reason]:,}", data=data) for reason in REASONS if left_out[reason])


def source_request(data: DataConfig) -> SourceRequest:
    """The source of the prompts, with the columns that settings name and those of :data:`BESIDE`."""
    named = {f"data.{name}": column for name in NAMED.values() if (column := getattr(data, name))}
    usual = tuple(name for names in BESIDE.values() for name in names if name not in named.values())
    return SourceRequest(data.prompts, named, usual, data.subset, data.split, data.revision)


class _BoundedRows:
    """One pass over a source, in which memory is bounded.

    Attributes:
        rows_read: rows so far.
        left_out: rows left out so far, by reason.
        passed_over: some prompts were not kept, to save memory.
        columns: part of a prompt -> the column that it is read from.
    """

    def __init__(self, data: DataConfig, source: RowSource, keep_bytes: int):
        self.source = source
        self.rows_read = 0
        self.passed_over = False
        self._keep_bytes = keep_bytes
        self.left_out: Counter[str] = Counter()
        self._data = data
        self._request = source_request(data)
        self.columns: dict[str, str] = {}
        self._strange: set[str] = set()  # parts whose column held something else in the first row that has it
        self._known = -1

    def filled(self) -> Iterator[Prompt]:
        """The first ``data.max_prompts`` rows with text, as far as they are kept."""
        count = size = 0
        try:
            for raw in self.source.rows:
                self.rows_read += 1
                cells = self._parts(raw)
                prompt = prompt_from(raw.number, cells, self.columns, self._data, *self._has)
                if not prompt.text.strip():
                    self._note_blank(count)
                    continue
                size += prompt.memory()
                if size > MAX_BYTES:
                    message = S_(f"the first {count:,} prompts take {MAX_BYTES // 10**6:,} MB of memory already; use at most {count:,}")
                    raise PromptsError("data.max_prompts", message)
                self.passed_over |= size > self._keep_bytes
                if not self.passed_over:
                    yield prompt
                count += 1
                if count == self._data.max_prompts:
                    return
        finally:
            self.source.rows.close()

    def _parts(self, raw: RawRow) -> dict[str, Any]:
        """The cells of the parts of a prompt. Columns that come with this row are used like those of the first."""
        named = self._request.columns
        row = dict(zip((*named.values(), *self._request.usual), raw.cells, strict=True))
        names = self.source.columns
        if self._known != len(names):
            self._known = len(names)
            own = {part: column for part, name in NAMED.items() if (column := getattr(self._data, name))}
            taken = {root_of(column, names) for column in own.values()}
            beside = beside_columns(names, self._data.column, taken, self._data.input_column, self._data.chat_template)
            new = beside.keys() - self.columns.keys() - own.keys()
            self._strange |= {part for part in new if not fits(part, row[beside[part]])}
            self.columns = {**own, **{part: column for part, column in beside.items() if part not in self._strange}}
            self._has = self._data.column in PAIR and set(PAIR) <= set(names), "prompt" in names
        return {part: row[column] for part, column in self.columns.items()}

    def _note_blank(self, count: int) -> None:
        self.left_out["blank"] += 1
        if self.left_out["blank"] > MAX_BLANK_ROWS + BLANK_PER_PROMPT * count:
            message = S_(f"{self.left_out['blank']:,} rows are blank and {count:,} are not; this is no list of prompts")
            raise PromptsError("data.prompts", message)


def _filtered(prompts: Iterator[Prompt], data: DataConfig, left_out: Counter[str]) -> Iterator[Prompt]:
    """The prompts that pass the text filters."""
    keys: set[tuple[str, Any]] = set()
    for prompt in prompts:
        key = (prompt.text, key_of(prompt.messages))
        if data.drop_duplicates and key in keys:
            left_out["repeated"] += 1
        elif len(prompt.text) < data.min_characters:
            left_out["few_characters"] += 1
        elif data.max_characters and len(prompt.text) > data.max_characters:
            left_out["many_characters"] += 1
        else:
            yield prompt
        if data.drop_duplicates:
            keys.add(key)
