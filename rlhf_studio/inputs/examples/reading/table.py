"""The rows of a source of examples, bounded in number and memory: each as the cells of the parts of the recognised shape."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.config.bundled import PAIR_FILES, WRITTEN
from rlhf_studio.inputs.examples.reading.shapes import (
    NEEDED,
    PAIRS,
    PREFERRED,
    Layout,
    named_columns,
    recognise,
    setting_of,
    usual_columns,
    widened,
)
from rlhf_studio.inputs.examples.reading.world import open_world
from rlhf_studio.inputs.examples.rows import SETTINGS as SETTINGS_OF_REASONS
from rlhf_studio.inputs.examples.rows import Demonstration, Pair, reasons
from rlhf_studio.inputs.prompts.cells import BESIDE, Beside, beside_of, fits
from rlhf_studio.inputs.prompts.errors import SOURCE, NoColumn, PromptsError
from rlhf_studio.inputs.prompts.messages import Message, is_message, key_of, list_of, messages_of, spoken, text_of
from rlhf_studio.inputs.prompts.sources.opening import open_source
from rlhf_studio.inputs.prompts.sources.rows import RawRow, RowSource, SourceRequest, Tick
from rlhf_studio.language import S_

SETTING = "data.source"
MAX_BYTES = 1_000_000_000
"""The most memory that the examples of a run may take, since 300 bytes of Parquet can hold gigabytes of text."""
MAX_BLANK_ROWS = 200_000
BLANK_PER_EXAMPLE = 10
MOST_MARGIN = 1e9
"""The most points by which one response may be better than another: beyond, a loss in 32 bits is no number at last."""
TRUE, FALSE = ("true", "yes", "1", "1.0", "tie"), ("false", "no", "0", "0.0", "")


@dataclass(frozen=True)
class Cells:
    """One row: the cells of the shape's parts. Every error names the row, the column and the setting."""

    number: int
    parts: dict[str, Any]
    layout: Layout
    data: DemonstrationsConfig | PairsConfig

    def text(self, part: str) -> str:
        """The text there; empty where the source has no such part."""
        if part not in self.layout.columns:
            return ""
        return self.text_in(part, self.parts[part])

    def text_in(self, part: str, cell: Any) -> str:
        """The text in one ``cell`` of a part."""
        return text_of(cell, self.number, setting_of(part), self.layout.columns[part])

    def text_or_number(self, part: str) -> str:
        """As :meth:`text`; a number, true or false as its text."""
        cell = self.parts.get(part)
        return str(cell) if isinstance(cell, bool | int | float) else self.text(part)

    def annotator(self) -> str:
        """Who judged the row, in whatever way the source writes it; empty where nothing says so."""
        cell = self.parts.get("annotator")
        return "" if cell is None else str(cell)

    def lacks_prompt(self) -> bool:
        """Whether the row has nothing in the prompt's column; an empty text is a prompt."""
        return "prompt" in self.parts and self.parts["prompt"] is None

    def is_list(self, part: str) -> bool:
        """Whether it holds chat messages, or another list."""
        return isinstance(self.parts.get(part), list) or is_message(self.parts.get(part))

    def messages(self, part: str) -> list[Message]:
        """The chat messages there, also from a JSON text, as CSV files hold them. Raises where nothing says how they are written."""
        if not self.as_chat:
            ways = S_("switch data.chat_template on, or say in data.prompt_format how prompts are written")
            raise self.error(part, "chat messages", f", not text; {ways}")
        return messages_of(self.items(part), self.number, setting_of(part), self.layout.columns[part])

    def items(self, part: str) -> list[Any]:
        """The list there, also from a JSON text, as CSV files hold it."""
        return list_of(self.parts[part], self.number, setting_of(part), self.layout.columns[part])

    @property
    def as_chat(self) -> bool:
        """Whether prompts are written as chats."""
        return bool(self.data.chat_template or self.data.prompt_format)

    def prompt(self, text: str | None = None, as_chat: bool | None = None) -> tuple[str, tuple[Message, ...] | None]:
        """The whole prompt with what stands beside it, as a text and, where it is a chat, as messages.

        ``text``: the prompt itself where it is not what the row holds in that part; ``as_chat``: whether it may become a chat.
        """
        if text is None and self.is_list("prompt"):
            messages = self.whole_chat(self.messages("prompt"))
            return spoken(messages), messages
        return self._beside(None).around_text(self.text("prompt") if text is None else text, self.as_chat if as_chat is None else as_chat)

    def whole_chat(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages with what stands beside them."""
        return self._beside(messages).around_chat(messages)

    def _beside(self, chat: Sequence[Message] | None) -> Beside:
        return beside_of(self.parts, self.layout.columns, self.number, SETTING, self.as_chat, chat)

    def number_in(self, part: str) -> float | None:
        """The number there; None where there is nothing."""
        return self.number_of(part, self.parts.get(part))

    def number_of(self, part: str, cell: Any) -> float | None:
        """The number in one ``cell`` of a part; true is 1 and false 0. None where there is nothing."""
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            return None
        try:
            value = float({"true": 1, "false": 0}.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell)
        except (TypeError, ValueError):
            raise self.error(part, repr(cell)[:60], ", not a number") from None
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise self.error(part, repr(cell)[:60], ", not a finite number")
        return value

    def margin(self, part: str, margin: float, over: str = "") -> float:
        """``margin``, which the row gives a pair (``over`` which other row).

        Raises :class:`PromptsError` where the chosen response is not the better one, and beyond :data:`MOST_MARGIN`.
        """
        if margin < 0:
            raise self.error(part, f"a margin of {margin:g}", ": the chosen response must be the better one; swap the two, or use 0")
        if margin > MOST_MARGIN:
            raise self.error(part, f"a margin of {margin:g}{over}", f": no scores are so far apart; it may be {MOST_MARGIN:,.0f} at most")
        return margin

    def is_true(self, part: str) -> bool:
        """Whether it holds true, 1 or yes; nothing counts as false."""
        word = str(self.parts.get(part) or "").strip().lower()
        if word not in (*TRUE, *FALSE):
            raise self.error(part, repr(word)[:60], ", neither true nor false")
        return word in TRUE

    def is_blank(self) -> bool:
        """Whether there is nothing in any part that the shape needs."""
        cells = (self.parts[part] for part in self.layout.shape.needs)
        return all(cell is None or cell == [] or (isinstance(cell, str) and not cell.strip()) for cell in cells)

    def error(self, part: str, what: str, rather: str = "") -> PromptsError:
        """``row 3 holds WHAT in 'column'``, at the part's setting."""
        return PromptsError(setting_of(part), f"row {self.number} holds {what} in {self.layout.columns[part]!r}{rather}")


@dataclass
class ExampleTable:
    """An opened source of examples.

    Attributes:
        layout: the recognised shape; None until the first row was drawn.
        left_out: examples left out so far, by reason.
        counts: what else happened to rows, by kind, for notes.
        rows_read: rows so far.
        limit: the most rows to read; None for all.
        unfit: the parts of :data:`OWN` whose column holds something else, with what is wrong; they are not read.
        strange: the other parts whose column held something else in the first row that has it; they are not read.
        size: bytes of memory that the examples so far take, about. Those of equal responses count although none is kept: a ranking of
            few characters gives hundreds.
    """

    data: DemonstrationsConfig | PairsConfig
    source: RowSource
    layout: Layout | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    rows_read: int = 0
    size: int = 0
    limit: int | None = None
    unfit: Mapping[str, str] = field(default_factory=dict)
    strange: set[str] = field(default_factory=set)
    _known: int = -1

    def rows(self) -> Iterator[Cells]:
        """The rows with something in them, at most ``data.max_rows``, or ``limit``. Raises :class:`PromptsError`."""
        most = min(self.data.max_rows, self.limit or self.data.max_rows)
        try:
            for raw in self.source.rows:
                self.rows_read += 1
                cells = self._cells(raw)
                if cells.is_blank():
                    self._note_blank()
                elif cells.lacks_prompt() and cells.layout.shape not in (PAIRS, PREFERRED):  # which may be dialogues
                    self.left_out["no_prompt"] += 1
                else:
                    yield cells
                if self.rows_read == most:
                    return
        finally:
            self.source.rows.close()

    @property
    def partial(self) -> bool:
        """Whether reading stopped at ``limit``."""
        return self.limit is not None and self.rows_read >= self.limit and self.limit < self.data.max_rows

    def add(self, row: Demonstration | Pair) -> None:
        """Count an example. Raises :class:`PromptsError` when all of them do not fit into memory."""
        self.size += row.memory()
        self.require_room(self.size)

    def require_room(self, size: int) -> None:
        """Raises :class:`PromptsError` when what was made of the rows so far takes more than :data:`MAX_BYTES`."""
        if size > MAX_BYTES:
            message = S_(f"the examples of {self.rows_read:,} rows take more than {MAX_BYTES // 10**6:,} MB of memory")
            raise PromptsError("data.max_rows", f"{message}; use at most {self.rows_read - 1:,} rows")

    def _cells(self, raw: RawRow) -> Cells:
        columns = self.source.columns
        if self.layout is None:
            self._names = [*named_columns(self.data).values(), *usual_columns(self.data)]
        if self.layout is None or self._known != len(columns):
            layout = (
                recognise(self.data, columns, self.unfit) if self.layout is None else widened(self.layout, self.data, columns, self._unread)
            )
            before = set() if self.layout is None else set(self.layout.columns)
            parts = self._of(raw, layout)
            self.strange |= {part for part, cell in parts.items() if part not in before and not _fits(part, cell, parts)}
            self.layout = widened(layout, self.data, columns, self._unread)
            self._known = len(columns)
        return Cells(raw.number, self._of(raw, self.layout), self.layout, self.data)

    def _of(self, raw: RawRow, layout: Layout) -> dict[str, Any]:
        return {part: raw.cells[self._names.index(column)] for part, column in layout.columns.items()}

    @property
    def _unread(self) -> set[str]:
        return {*self.unfit, *self.strange}

    def _note_blank(self) -> None:
        self.left_out["blank"] += 1
        blank, others = self.left_out["blank"], self.rows_read - self.left_out["blank"]
        if blank > MAX_BLANK_ROWS + BLANK_PER_EXAMPLE * others:
            raise PromptsError(SETTING, f"{blank:,} rows are blank and {others:,} are not; this is no list of examples")


def open_table_of(data: DemonstrationsConfig | PairsConfig, limit: int | None, seconds: float, tick: Tick) -> ExampleTable:
    """Open the source of examples. Raises :class:`PromptsError`, also while its rows are drawn."""
    columns = {setting_of(part): column for part, column in named_columns(data).items()}
    request = SourceRequest(data.source, columns, usual_columns(data), data.subset, data.split, data.revision, SETTING)
    own, other = ("demonstrations", "pairs") if isinstance(data, DemonstrationsConfig) else ("pairs", "demonstrations")
    if data.source in WRITTEN[own]:
        return ExampleTable(data, open_world(request), limit=limit)
    if data.source.startswith("bundled/") and not (own == "pairs" and data.source in PAIR_FILES):
        why = f"holds {other}" if data.source in WRITTEN[other] else S_("does not exist")
        raise PromptsError(SETTING, f"{data.source} {why}; bundled {own} are {' and '.join(WRITTEN[own])}")
    return ExampleTable(data, open_source(request, limit=limit, seconds=seconds, tick=tick), limit=limit)


def weight_of(cells: Cells) -> float:
    """How sure people were, from 0 to 1; 1 where nothing says so. Raises :class:`PromptsError` for anything else."""
    weight = cells.number_in("confidence")
    if weight is not None and not 0 <= weight <= 1:
        raise cells.error("confidence", f"{weight:g}", "; confidence goes from 0 to 1")
    return 1.0 if weight is None else weight


def _fits(part: str, cell: Any, parts: Mapping[str, Any]) -> bool:
    """Whether a further part's cell can be what its column's name says."""
    if part == "messages" and "chosen" in parts:  # a prompt, where both answers are single messages
        return is_message(parts["chosen"])
    return part not in BESIDE or fits(part, cell)


def bounded(rows: Iterator[Any], data: DemonstrationsConfig | PairsConfig, table: ExampleTable) -> Iterator[Any]:
    """The rows without exact copies, while they fit into memory. Raises :class:`PromptsError` when they do not."""
    keys: set[tuple[Any, ...]] = set()
    for row in rows:
        if data.drop_duplicates:
            key = identity(row)
            if key in keys:
                table.left_out["repeated"] += 1
                continue
            keys.add(key)
        table.add(row)
        yield row


def identity(row: Demonstration | Pair) -> tuple[Any, ...]:
    """What makes an example an exact copy of another.

    Of a pair that is all that its row says: the same texts judged by another annotator, or with another confidence, are another judgement.
    """
    if isinstance(row, Demonstration):
        return (row.prompt, row.completion, key_of(row.messages))
    return (*texts_of(row), row.tie, row.weight, row.margin, row.group, row.annotator)


def texts_of(row: Pair) -> tuple[Any, ...]:
    """The texts of a pair: its prompt, with the messages where it has some, and both responses in their order."""
    return (row.prompt, key_of(row.messages), *row.responses())


def nothing_left_of(data: DemonstrationsConfig | PairsConfig, left_out: Counter[str]) -> PromptsError:
    """The error for a source of which no example is left, at the setting that left out the most."""
    noun = "demonstrations" if isinstance(data, DemonstrationsConfig) else "pairs"
    if not left_out:
        return PromptsError(SETTING, f"{data.source} holds no {noun}")
    worst = left_out.most_common(1)[0][0]
    return PromptsError(SETTINGS_OF_REASONS.get(worst, SETTING), f"{data.source} holds no {noun} that are left: {reasons(left_out, data)}")


def with_own_setting(error: PromptsError, data: DemonstrationsConfig | PairsConfig) -> PromptsError:
    """The error with this stage's name for the setting of the source. For a missing column it also says which columns are needed."""
    if error.field == SOURCE:
        return PromptsError(SETTING, error.message)
    if not isinstance(error, NoColumn):
        return error
    named = any(error.field == setting_of(part) for part in named_columns(data))
    way_out = S_(f"; name another one in {error.field}, or empty it where the columns have their usual names") if named else ""
    return PromptsError(error.field, f"{error.message}{way_out}; {NEEDED[type(data)]}")
