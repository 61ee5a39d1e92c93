"""What a person sees of examples before anything is loaded: the first of them, their lengths, and what is left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.examples.cached import Examples, read_first
from rlhf_studio.inputs.examples.encoded import Length, PreparedDemonstrations, PreparedPairs
from rlhf_studio.inputs.examples.held_out import split_held_out
from rlhf_studio.inputs.examples.prepare import last_answer, prepare_demonstrations, prepare_pairs
from rlhf_studio.inputs.examples.rows import Demonstration, Demonstrations, Pair, left_out_note
from rlhf_studio.inputs.examples.texts import demonstration_parts, pair_texts
from rlhf_studio.inputs.prompts.messages import Fields
from rlhf_studio.inputs.prompts.preview import Lengths, lengths_of, shortened
from rlhf_studio.inputs.tokens import load_encoder
from rlhf_studio.language import _
from rlhf_studio.units import percent

MEASURED_CHARACTERS = 2_000_000  # about two seconds of work
MOST_SHOWN = 200
"""The most examples that can be shown."""
END = -1
"""Stands for the end token, whose id does not matter here."""


@dataclass(frozen=True)
class PreviewExample:
    """One example.

    Attributes:
        number: its row in the source.
        texts: prompt and response, or prompt, chosen and rejected response, as they are encoded.
        tokens: of each of these, before anything is cut; None when no tokenizer is at hand.
        cut: the beginning of its prompt is left out, or it is divided.
        held_out: training never sees it; of a source that was not read whole this is not known, and false.
        said: what people said of a pair, such as "margin 2" or "tie".
    """

    number: int
    texts: tuple[str, ...]
    tokens: tuple[int, ...] | None
    cut: bool
    held_out: bool = False
    said: str = ""


@dataclass(frozen=True)
class ExamplesPreview:
    """What is known of the examples.

    Attributes:
        shape: what was recognised, in words.
        rows: the first examples.
        total: how many of the examples that were looked at are left.
        whole: whether every row of the source was looked at.
        columns: the source's column names.
        lengths: tokens of prompt and (longer) response together; None without a tokenizer.
        notes: one sentence each for what is left out, cut or held out.
    """

    shape: str
    rows: list[PreviewExample]
    total: int
    whole: bool
    columns: list[str]
    lengths: Lengths | None
    notes: list[str]


@dataclass(frozen=True, eq=False)
class MeasuredExamples:
    """The first examples as training will read them, and what they were read from."""

    read: Examples
    prepared: PreparedDemonstrations | PreparedPairs | None
    complete: bool


def preview_examples(
    data: DemonstrationsConfig | PairsConfig, rows: int, tokenizer: Path | None, chat: ChatTemplate | None = None, seed: int = 0
) -> ExamplesPreview:
    """The first ``rows`` examples as training will read them, with what is left out. Raises :class:`PromptsError`.

    Without a ``tokenizer`` there are no lengths, and what is cut or left out by length cannot be shown.
    """
    measured = measure(data, tokenizer, chat)
    read, prepared = measured.read, measured.prepared
    aside = held_out_of(measured, data, seed)
    held_out = {row.number for row in aside}
    notes = [*read.notes, *notes_of(measured, data), *held_out_notes(measured, data, len(aside))]
    if prepared is None:
        first: list[Any] = read.rows[:rows]
        texts = _texts(data, first, chat)
        examples = [_example(row, own, None, data, row.number in held_out) for row, own in zip(first, texts, strict=True)]
        return ExamplesPreview(read.shape, examples, len(read.rows), measured.complete, read.columns, None, notes)
    left = _one_row_each(prepared)
    examples = [
        _example(row, texts, length, data, row.number in held_out)
        for row, texts, length in zip(left[:rows], prepared.texts, prepared.lengths, strict=False)
    ]
    lengths = lengths_of([length.longest for length in prepared.lengths])
    return ExamplesPreview(read.shape, examples, len(prepared.lengths), measured.complete, read.columns, lengths, notes)


def measure(
    data: DemonstrationsConfig | PairsConfig,
    tokenizer: Path | None,
    chat: ChatTemplate | None,
    *,
    loss_on: Literal["response", "text"] = "response",
) -> MeasuredExamples:
    """Read and prepare the first examples as a stage will, without preparing them where there is no tokenizer that can be read.

    ``loss_on``: what fine-tuning learns. Raises :class:`PromptsError`.
    """
    read = read_first(data)
    if tokenizer is None or not tokenizer.is_file():
        return MeasuredExamples(read, None, not read.partial)
    stat = tokenizer.stat()
    return _measured(read, data, tokenizer, (stat.st_mtime_ns, stat.st_size), chat, loss_on)


@lru_cache(maxsize=8)
def _measured(
    read: Examples,
    data: DemonstrationsConfig | PairsConfig,
    tokenizer: Path,
    state: tuple[int, int],
    chat: ChatTemplate | None,
    loss_on: Literal["response", "text"],
) -> MeasuredExamples:
    encoder = load_encoder(tokenizer)
    if encoder is None:
        return MeasuredExamples(read, None, not read.partial)
    rows = read.rows[: _measured_rows(read)]
    prepared: PreparedDemonstrations | PreparedPairs
    if isinstance(read, Demonstrations) and isinstance(data, DemonstrationsConfig):
        prepared = prepare_demonstrations(_demonstrations(rows), data, encoder, chat, loss_on, end=END, keep_texts=MOST_SHOWN)
    else:
        assert isinstance(data, PairsConfig)
        prepared = prepare_pairs(_pairs(rows), data, encoder, chat, whole_texts=False, ties=True, end=END, keep_texts=MOST_SHOWN)
    return MeasuredExamples(read, prepared, not read.partial and len(rows) == len(read.rows))


def notes_of(measured: MeasuredExamples, data: DemonstrationsConfig | PairsConfig) -> list[str]:
    """What was left out of the examples that were looked at, and what was changed, one sentence each."""
    read, prepared = measured.read, measured.prepared
    noun = "demonstrations" if isinstance(data, DemonstrationsConfig) else "pairs"
    if prepared is None:
        return left_out_note(read.left_out, len(read.rows), data, noun)
    if isinstance(prepared, PreparedDemonstrations) and isinstance(data, DemonstrationsConfig):
        return prepared.notes(data, read.left_out)
    assert isinstance(prepared, PreparedPairs) and isinstance(data, PairsConfig)
    return prepared.notes(data, read.left_out)


def held_out_of(measured: MeasuredExamples, data: DemonstrationsConfig | PairsConfig, seed: int) -> list[Demonstration] | list[Pair]:
    """The examples that are set aside; none of a source of which only the first rows are known."""
    if not measured.complete:
        return []
    rows = measured.read.rows
    return (
        split_held_out(_demonstrations(rows), data, seed)[1]
        if isinstance(measured.read, Demonstrations)
        else split_held_out(_pairs(rows), data, seed)[1]
    )


def held_out_notes(measured: MeasuredExamples, data: DemonstrationsConfig | PairsConfig, aside: int) -> list[str]:
    """What is set aside, one sentence or none."""
    if data.eval or not data.eval_share:
        return []
    total = len(measured.read.rows)
    if not measured.complete:
        return [
            _("Of all examples {eval_share} are held out, at most 1,000: training never sees them (data.eval_share).").format(
                eval_share=percent(data.eval_share)
            )
        ]
    if aside:
        return [
            _("{aside:,} of {total:,} examples are held out: training never sees them (data.eval_share).").format(aside=aside, total=total)
        ]
    return [_("None of the {total:,} examples is held out: there are too few, or all have the same prompt.").format(total=total)]


def _texts(
    data: DemonstrationsConfig | PairsConfig, rows: list[Demonstration] | list[Pair], chat: ChatTemplate | None
) -> list[tuple[str, ...]]:
    """The texts of these rows, where there is no tokenizer to prepare them with."""
    if isinstance(data, PairsConfig):
        return [text or ("", "", "") for text in pair_texts(_pairs(rows), data, chat, Counter(), lambda: None, Fields())]
    parts = demonstration_parts(_demonstrations(rows), data, chat, Counter(), lambda: None, Fields())
    divided = ((row_parts[: last_answer(row_parts)], row_parts[last_answer(row_parts) :]) for row_parts in parts)
    return [("".join(text for text, _ in prompt), "".join(text for text, _ in response)) for prompt, response in divided]


def _example(
    row: Demonstration | Pair, texts: tuple[str, ...], length: Length | None, data: DemonstrationsConfig | PairsConfig, held_out: bool
) -> PreviewExample:
    short_texts = tuple(shortened(text) for text in texts)
    judgement = _judgement(row) if isinstance(row, Pair) else ""
    if length is None:
        return PreviewExample(row.number, short_texts, None, False, held_out, judgement)
    tokens = (length.prompt, length.chosen, length.rejected) if isinstance(row, Pair) else (length.prompt, length.chosen)
    return PreviewExample(row.number, short_texts, tokens, length.longest > data.max_tokens, held_out, judgement)


def _judgement(row: Pair) -> str:
    parts = ["tie"] if row.tie else []
    parts += [_("margin {value:g}").format(value=row.margin)] if row.margin is not None else []
    parts += [_("confidence {value:g}").format(value=row.weight)] if row.weight != 1 else []
    return ", ".join([*parts, row.group] if row.group else parts)


def _one_row_each(prepared: PreparedDemonstrations | PreparedPairs) -> list[Demonstration | Pair]:
    """The examples that are left, one entry for each length; a text that was divided stands there once."""
    rows: list[Demonstration | Pair] = []
    for row in prepared.rows:
        if not rows or rows[-1] is not row:
            rows.append(row)
    return rows


def _measured_rows(read: Examples) -> int:
    """How many of the first examples are measured: no more once they hold so many characters."""
    sizes = (sum(map(len, _all_texts(row))) for row in read.rows)
    return sum(before < MEASURED_CHARACTERS for before in accumulate(sizes, initial=0)) if read.rows else 0


def _all_texts(row: Demonstration | Pair) -> tuple[str, ...]:
    return (row.prompt, row.completion) if isinstance(row, Demonstration) else (row.prompt, row.chosen, row.rejected)


def _demonstrations(rows: list[Demonstration] | list[Pair]) -> list[Demonstration]:
    return [row for row in rows if isinstance(row, Demonstration)]


def _pairs(rows: list[Demonstration] | list[Pair]) -> list[Pair]:
    return [row for row in rows if isinstance(row, Pair)]
