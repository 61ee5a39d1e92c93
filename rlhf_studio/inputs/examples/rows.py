"""What a supervised stage learns from, as it was read: demonstrations to imitate, and pairs of responses."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rlhf_studio.inputs.prompts.cells import OBJECT_BYTES
from rlhf_studio.inputs.prompts.messages import Message, parts_of
from rlhf_studio.language import S_

REASONS = {
    "blank": "{n} blank",
    "no_prompt": "{n} without a prompt",
    "no_rating": "{n} without a rating",
    "empty_response": S_("{n} with an empty response"),
    "silent": S_("{n} with an empty answer, or a call in its place that is not written"),
    "equal": S_("{n} whose chosen and rejected responses are the same"),
    "no_shared_prompt": S_("{n} whose two chats differ before their last answers"),
    "no_answer": S_("{n} without an answer of the assistant"),
    "alone": S_("{n} with the only response to their prompt"),
    "same_rating": S_("{n} whose prompt has responses of one rating only"),
    "low_confidence": S_("{n} of which people were less sure than {data.min_confidence:g}"),
    "repeated": S_("{n} exact copies of earlier ones"),
    "tie": S_("{n} with equally good responses"),
    "too_long": S_("{n} with more than {data.max_tokens:,} tokens"),
    "long_response": S_("{n} whose response alone takes {data.max_tokens:,} tokens or more"),
}
"""Why an example is left out -> the words for it in a note."""

SETTINGS = {
    "low_confidence": "data.min_confidence",
    "repeated": "data.drop_duplicates",
    "too_long": "data.max_tokens",
    "long_response": "data.max_tokens",
}
"""Why an example is left out -> the setting that a person would change; for the others it is ``data.source``."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One example to imitate.

    Attributes:
        number: its row in the source, as a person counts.
        prompt: what stands before the response; empty for a plain text, all of which is to be learned.
        completion: the response to learn. The texts are joined as they are: a space between them belongs to the response.
        messages: the whole chat where the row holds one, answers included; every answer of the assistant is to be learned.
    """

    number: int
    prompt: str
    completion: str
    messages: tuple[Message, ...] | None = None

    def memory(self) -> int:
        """Bytes that it takes, about."""
        return memory_of((self.prompt, self.completion), self.messages)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two responses to one prompt.

    Attributes:
        number: their row in the source, as a person counts; of rated rows that of the chosen response.
        prompt: what both share. Of a dialogue the text up to the place where the answers begin.
        chosen, rejected: the preferred response and the other one.
        messages: the chat that both answer, where the row holds one.
        margin: how much better the chosen response is, in points of the score; None where nothing says so.
        weight: how sure people were, above 0 and at most 1.
        tie: both are equally good; which one is called chosen means nothing then.
        group: what the prompt belongs to, such as its topic.
        block: pairs that share responses but no prompt have the same number, and 0 stands for none.
        annotator: who judged; empty where nothing says so. Training does not read it, so it is no part of the fingerprint.
        answers: both responses as messages, where they say more than a text, such as a call.
    """

    number: int
    prompt: str
    chosen: str
    rejected: str
    messages: tuple[Message, ...] | None = None
    margin: float | None = None
    weight: float = 1.0
    tie: bool = False
    group: str = ""
    block: int = 0
    annotator: str = field(default="", repr=False)
    answers: tuple[Message, Message] | None = None

    def responses(self) -> tuple[Any, ...]:
        """All that both responses say, the chosen one first, as something that can be compared."""
        return (self.chosen, self.rejected) if self.answers is None else tuple(map(parts_of, self.answers))

    def memory(self) -> int:
        """Bytes that it takes, about."""
        messages = (*(self.messages or ()), *(self.answers or ()))
        return memory_of((self.prompt, self.chosen, self.rejected, self.group, self.annotator), messages)


Row = TypeVar("Row", Demonstration, Pair)


@dataclass(frozen=True, eq=False)  # so that the same object can be the key of a cache
class _Rows(Generic[Row]):
    """Attributes:
    rows: what is left after the filters, in the order of the source.
    left_out: number of examples left out, by reason (a key of :data:`REASONS`).
    columns: the source's column names.
    shape: what was recognised, in words: the columns and what they mean.
    notes: one sentence each about the source and what was made of it, for a person.
    partial: only the first rows of the source are here; there may be more.
    """

    rows: list[Row]
    left_out: Counter[str] = field(default_factory=Counter)
    columns: list[str] = field(default_factory=list)
    shape: str = ""
    notes: list[str] = field(default_factory=list)
    partial: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def fingerprint(self) -> str:
        """SHA-256 over all that training reads: changes when any of it does."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(f"{row!r}\n".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


class Demonstrations(_Rows[Demonstration]):
    """Demonstrations of a source."""


class Pairs(_Rows[Pair]):
    """Pairs of a source."""


def holds_plain_texts(rows: Iterable[Demonstration | Pair]) -> bool:
    """Whether any of them is a text without a prompt, which no chat template can write."""
    return any(not row.prompt and row.messages is None for row in rows)


def reasons(left_out: Counter[str], data: Any) -> str:
    """``3 blank, 2 repeated``."""
    return ", ".join(text.format(n=f"{left_out[reason]:,}", data=data) for reason, text in REASONS.items() if left_out[reason])


def left_out_note(left_out: Counter[str], left: int, data: Any, noun: str) -> list[str]:
    """One sentence for all that was left out, or none."""
    total = sum(left_out.values())
    were = "was" if total == 1 else "were"
    return [S_(f"{total:,} of {total + left:,} {noun} {were} left out: {reasons(left_out, data)}.")] if total else []


def memory_of(texts: Iterable[str], messages: tuple[Message, ...] | None) -> int:
    """Bytes that these texts take with their messages, about."""
    parts = [text for message in messages or () for text in parts_of(message)]
    return OBJECT_BYTES * (1 + len(messages or ())) + sum(map(sys.getsizeof, (*texts, *parts)))
