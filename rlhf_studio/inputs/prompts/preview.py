"""What a person sees of the prompts before anything is loaded: the first of them, their lengths, and what is left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.prompts.cached import read_once
from rlhf_studio.inputs.prompts.prepare import Prepared, prepare, prompt_texts
from rlhf_studio.inputs.prompts.read import Prompts
from rlhf_studio.inputs.tokens import load_encoder

MEASURED_ROWS = 5_000
MEASURED_CHARACTERS = 10_000_000  # about ten seconds of work
BINS = 16
SHOWN_CHARACTERS = 2_000


@dataclass(frozen=True)
class PreviewRow:
    """One prompt; ``tokens``, before the cut to the most that the policy reads, is None when no tokenizer is at hand."""

    text: str
    tokens: int | None
    cut: bool


@dataclass(frozen=True)
class Lengths:
    """Tokens of the prompts before that cut: quantiles, and how many prompts fall into each of equal steps from 0 to ``most``."""

    least: int
    median: int
    percentile_95: int
    most: int
    bins: list[int]


@dataclass(frozen=True)
class Preview:
    """What is known of the prompts.

    Attributes:
        rows: the first prompts.
        total: how many of the prompts that were looked at are left.
        whole: whether every row of the source was looked at.
        columns: the source's column names; empty for a text file.
        lengths: None without a tokenizer.
        notes: one sentence each for what is left out or cut.
    """

    rows: list[PreviewRow]
    total: int
    whole: bool
    columns: list[str]
    lengths: Lengths | None
    notes: list[str]


def preview_prompts(data: DataConfig, count: int, tokenizer: Path | None, chat: ChatTemplate | None = None, seed: int = 0) -> Preview:
    """Read and prepare the prompts as the engine will, of many or long ones the first. Raises :class:`PromptsError`.

    Without a ``tokenizer`` there are no lengths, and filters and cuts by length cannot be shown.
    """
    prompts = read_once(data)
    prepared = measure(prompts, data, tokenizer, chat, seed)
    if prepared is None:
        first = prompts.rows[:count]
        texts = prompt_texts(first, data, chat)
        counted = Prepared(prompts.texts, [], [], None, prompts.left_out, prompts.answered, prompts.notes, dialogues=prompts.dialogues)
        notes = counted.notes(data)
        rows = [PreviewRow(shortened(text), None, False) for text in texts]
        return Preview(rows, len(prompts), not prompts.partial, prompts.columns, None, notes)
    measured = zip(prepared.texts[:count], prepared.ids, prepared.lengths, strict=False)
    rows = [PreviewRow(shortened(text), length, len(ids) < length) for text, ids, length in measured]
    complete = measures_all(prompts) and not prompts.partial
    return Preview(rows, len(prepared.ids), complete, prompts.columns, lengths_of(prepared.lengths), prepared.notes(data))


def measure(prompts: Prompts, data: DataConfig, tokenizer: Path | None, chat: ChatTemplate | None, seed: int) -> Prepared | None:
    """The first prompts as the engine will prepare them; None without a tokenizer that can be read. Raises :class:`PromptsError`."""
    if tokenizer is None or not tokenizer.is_file():
        return None
    stat = tokenizer.stat()
    return _measured(prompts, data, tokenizer, (stat.st_mtime_ns, stat.st_size), chat, seed)


@lru_cache(maxsize=4)
def _measured(
    prompts: Prompts, data: DataConfig, tokenizer: Path, state: tuple[int, int], chat: ChatTemplate | None, seed: int
) -> Prepared | None:
    encoder = load_encoder(tokenizer)
    return None if encoder is None else prepare(replace(prompts, rows=prompts.rows[: _measured_rows(prompts)]), data, encoder, chat, seed)


def measures_all(prompts: Prompts) -> bool:
    """Whether :func:`measure` looks at every one of the prompts."""
    return _measured_rows(prompts) == len(prompts)


def _measured_rows(prompts: Prompts) -> int:
    """How many of the first prompts are measured: so many rows, and no more once they hold so many characters."""
    rows = prompts.rows[:MEASURED_ROWS]
    before = accumulate((len(row.text) for row in rows), initial=0)
    return sum(characters < MEASURED_CHARACTERS for characters, _ in zip(before, rows, strict=False))


def shortened(text: str) -> str:
    """Beginning and end of a text that is too long to look at."""
    half = SHOWN_CHARACTERS // 2
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:half]} [... {len(text) - 2 * half:,} characters ...] {text[-half:]}"


def lengths_of(lengths: Sequence[int]) -> Lengths | None:
    """Quantiles and histogram of these numbers of tokens; None of none."""
    if not lengths:
        return None
    counts = sorted(lengths)
    bins = [0] * BINS
    for count in counts:
        bins[count * BINS // (counts[-1] + 1)] += 1
    return Lengths(counts[0], _quantile(counts, 0.5), _quantile(counts, 0.95), counts[-1], bins)


def _quantile(ordered: list[int], fraction: float) -> int:
    """The least count that at least this fraction of the prompts does not exceed."""
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]
