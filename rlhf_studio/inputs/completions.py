"""Files of completions: prompts with what some model answered, one JSON object a line; and the pairs that a judge makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.sources.lines import text_lines
from rlhf_studio.language import S_
from rlhf_studio.units import percent

ONE = ("completion", "response")
SEVERAL = ("completions", "responses")
MOST_BYTES = 500_000_000
MOST_LINE = 5_000_000
"""The most characters of one line, which may hold many long answers. No longer one is ever in memory, whatever a packed file unpacks to."""


def is_completions(name: str) -> bool:
    """Whether a policy that a person names is a file of completions."""
    return name.endswith((".jsonl", ".jsonl.gz"))


def read_completions(path: Path, field: str) -> dict[str, list[str]]:
    """The answers to each prompt, in the order of the file.

    A line is ``{"prompt": ..., "completion": ...}``, or has a list under ``completions``; ``response`` and ``responses`` mean the same.
    Lines with the same prompt belong together. Raises :class:`PromptsError` naming ``field`` and the line.
    """
    completions: dict[str, list[str]] = {}
    size = 0
    for number, line in _lines(path, field):
        size += len(line)
        if size > MOST_BYTES:
            raise PromptsError(field, f"{path.name} holds more than {MOST_BYTES // 1_000_000} MB of text")
        if not line.strip():
            continue
        prompt, answers = _row(line, f"{path.name}, line {number}", field)
        completions.setdefault(prompt, []).extend(answers)
    if not completions:
        raise PromptsError(field, f"{path.name} holds no completions")
    return completions


def _lines(path: Path, field: str) -> Iterator[tuple[int, str]]:
    try:
        yield from text_lines(path, MOST_LINE)
    except PromptsError as error:
        raise PromptsError(field, f"{path} cannot be read: {error.message}") from None


def _row(line: str, where: str, field: str) -> tuple[str, list[str]]:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptsError(field, f"{where} is not JSON: {error}") from None
    keys = [key for key in (*ONE, *SEVERAL) if isinstance(row, dict) and key in row]
    if not isinstance(row, dict) or "prompt" not in row or not keys:
        has = S_(f"; it has: {', '.join(map(str, row)) or 'nothing'}")[:200] if isinstance(row, dict) else ""
        raise PromptsError(field, f"{where} needs prompt and completion (or completions, a list){has}")
    if len(keys) > 1:
        raise PromptsError(field, f"{where} has {' and '.join(keys)}; leave one of them out")
    answers = [row[keys[0]]] if keys[0] in ONE else row[keys[0]]
    if not isinstance(row["prompt"], str) or not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise PromptsError(field, f"{where}: prompt must be text, and {keys[0]} {'text' if keys[0] in ONE else 'a list of texts'}")
    for text in (row["prompt"], *answers):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise PromptsError(field, f"{where} holds half a character (a lone surrogate)") from None
    return row["prompt"], answers


@dataclass(frozen=True)
class LabelledPair:
    """Two responses to one prompt, the preferred one first; ``margin`` is how much more it scored, None where nothing says so."""

    prompt: str
    chosen: str
    rejected: str
    margin: float | None = None


@dataclass(frozen=True)
class Labelled:
    """What a judge made of a file of completions.

    Attributes:
        equal: pairs that were left out because their texts are equal.
        tied: pairs that were left out because they scored the same.
        single: prompts with fewer than two responses, of which no pair can be made.
        ceiling: share of these preferences that a perfect reward model would agree with, known before anything is trained; None
            where nobody knows how often the judge errs.
        foreign: prompts that the judge was not made for, so that what it says of the responses means nothing.
        cut: texts of prompt and response of which the judge read only the end, because they are longer than it reads.
    """

    pairs: list[LabelledPair]
    equal: int
    tied: int
    single: int
    ceiling: float | None = None
    foreign: int = 0
    cut: int = 0

    def lines(self) -> list[str]:
        """A line of JSON for each pair, with the columns that every reader of pairs knows."""
        return [
            json.dumps({name: value for name, value in vars(pair).items() if value is not None}, ensure_ascii=True, allow_nan=False)
            for pair in self.pairs
        ]

    def notes(self) -> str:
        """How many pairs there are, why others were left out, and what is wrong with the judge here."""
        counts = {
            S_(f"{self.equal:,} of equal texts"): self.equal,
            S_(f"{self.tied:,} of equal scores"): self.tied,
            S_(f"{self.single:,} prompts with a single response"): self.single,
        }
        left = ", ".join(text for text, count in counts.items() if count)
        most = (
            ""
            if self.ceiling is None
            else S_(f" The raters err at times: even a perfect reward model agrees with only {percent(self.ceiling, 1)} of the pairs.")
        )
        known_only = (
            ""
            if not self.foreign
            else S_(
                f"\nWarning: {self.foreign:,} of the prompts begin no review of the bundled world. "
                "Its raters know nothing else: for these prompts their preferences mean nothing. Name a reward model as the judge instead."
            )
        )
        ends = S_(f"\nWarning: {self.cut:,} texts are longer than the judge reads: their beginning was cut off.") if self.cut else ""
        return S_(f"{len(self.pairs):,} pairs") + (S_(f"; left out: {left}.") if left else ".") + most + ends + known_only
