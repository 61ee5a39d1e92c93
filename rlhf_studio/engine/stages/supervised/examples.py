"""The examples of a supervised stage: read, divided into those to learn from and those held out, and encoded by the model's tokenizer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.engine.loop.prompts import TokenizerEncoder
from rlhf_studio.engine.text import chat_template
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.examples import (
    PreparedDemonstrations,
    PreparedPairs,
    PromptsError,
    prepare_demonstrations,
    prepare_pairs,
    read_demonstrations,
    read_pairs,
    split_held_out,
)
from rlhf_studio.inputs.examples.held_out import held_out_error, held_out_settings
from rlhf_studio.inputs.examples.rows import reasons
from rlhf_studio.language import S_
from rlhf_studio.runs.records import EventRecord

Prepared = TypeVar("Prepared", PreparedDemonstrations, PreparedPairs)


@dataclass(frozen=True)
class StageExamples(Generic[Prepared]):
    """The examples of a run; ``notes`` are sentences for people, ``counts`` an event with the numbers that the doctor reads."""

    training: Prepared
    held_out: Prepared
    notes: list[str]
    counts: EventRecord


def load_demonstrations(
    data: DemonstrationsConfig,
    loss_on: Literal["response", "text"],
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    report: OnProgress,
    *,
    end: int | None,
) -> StageExamples[PreparedDemonstrations]:
    """Read and encode demonstrations, with ``end`` as in :func:`prepare_demonstrations`.

    Raises :class:`PromptsError`, also when none is left to learn from.
    """
    training, aside, notes, before = _read(read_demonstrations, data, seed, report, "demonstrations")
    encoding = (TokenizerEncoder(tokenizer), chat_template(tokenizer) if data.chat_template else None, loss_on)
    tick = lambda: report("Encoding the demonstrations", None)  # noqa: E731
    learned, held_out = (prepare_demonstrations(rows, data, *encoding, end=end, tick=tick) for rows in (training, aside))
    _check(data, len(learned.items), learned.left_out)
    notes += learned.notes(data, before) + [_numbers(len(learned.items), len(held_out.items), "demonstrations")]
    counted = sum(item.counted for item in learned.items)
    return StageExamples(learned, held_out, notes, _counts_of(learned, held_out, before, {"counted_tokens": counted}))


def load_pairs(
    data: PairsConfig,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    report: OnProgress,
    *,
    whole_texts: bool,
    ties: bool,
    end: int | None,
) -> StageExamples[PreparedPairs]:
    """Read and encode preference pairs, as :func:`prepare_pairs` says. Raises :class:`PromptsError`, also when none is left."""
    training, aside, notes, before = _read(read_pairs, data, seed, report, "pairs")
    encoder, chat = TokenizerEncoder(tokenizer), chat_template(tokenizer) if data.chat_template else None
    how: dict[str, Any] = {"whole_texts": whole_texts, "ties": ties, "end": end, "tick": lambda: report("Encoding the pairs", None)}
    learned = prepare_pairs(training, data, encoder, chat, **how)
    held_out = prepare_pairs(aside, data, encoder, chat, **how, keep_texts=len(aside))
    _check(data, len(learned.items), learned.left_out)
    notes += learned.notes(data, before) + [_numbers(len(learned.items), len(held_out.items), "pairs")]
    return StageExamples(learned, held_out, notes, _counts_of(learned, held_out, before, {}))


def _read(read: Any, data: Any, seed: int, report: OnProgress, noun: str) -> tuple[list[Any], list[Any], list[str], Any]:
    """(rows to learn from, rows held out, notes, how many rows were left out while reading, by reason)."""
    report(f"Reading the {noun}", None)

    def tick(text: str) -> None:
        report(f"Reading the {noun}: {text}", None)

    rows = read(data, tick)
    training, aside = split_held_out(rows.rows, data, seed)
    settings = held_out_settings(data)
    if settings is not None:
        try:
            aside = read(settings, tick).rows
        except PromptsError as error:
            raise held_out_error(error) from error
    return training, aside, list(rows.notes), rows.left_out


def _counts_of(learned: Any, held_out: Any, before: Counter[str], more: dict[str, Any]) -> EventRecord:
    """The counts of the examples, for the doctor (:mod:`rlhf_studio.analysis.doctor.checks.examples`)."""
    left_out = dict(before + learned.left_out + held_out.left_out)
    learned_items = set(learned.items)
    data = {
        "rows": len(learned.rows) + len(held_out.rows) + sum(left_out.values()),
        "examples": len(learned.items),
        "held_out": len(held_out.items),
        "cut": learned.counts["cut"],
        "left_out": left_out,
        "shared": sum(item in learned_items for item in held_out.items),
        **more,
    }
    return EventRecord("info", "examples", "What became of the rows that were read is on record.", data)


def _check(data: Any, count: int, left_out: Counter[str]) -> None:
    if not count:
        why = S_(f" (left out: {reasons(left_out, data)})") if left_out else ""
        raise PromptsError("data.source", f"{data.source} holds nothing to learn from{why}")


def _numbers(training: int, held_out: int, noun: str) -> str:
    measured = S_(f"is measured on {held_out:,} that it never learns from") if held_out else S_("has none held out to be measured on")
    return S_(f"The run learns from {training:,} {noun} and {measured}.")
