"""What a form is, and what its reader is given to work with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlhf_studio.analysis.logs.shape import LogFields

Record = dict[str, Any]
"""What a file of another program has for one response (or for several): an object of JSON Lines, or a row of a table."""
MOST_NAMED = 20


class Cutter(Protocol):
    """Cuts texts into tokens, or gives tokens their texts."""

    note: str
    note_of_ids: str
    words: bool
    """Whether it cuts at words."""

    def cut(self, text: str) -> LogFields:
        """``response_tokens`` of a text, and ``response_ids`` where they are known."""

    def pieces(self, ids: list[int]) -> list[str]:
        """The text that each token adds."""


@dataclass
class Reading:
    """What a reader is given beside the records, and what it has to say of them to people.

    Attributes:
        cutter: cuts texts into tokens.
        memory: what a form remembers from one batch to the next.
        words: whether lengths are those of texts that were cut at words.
        weights: of the reward columns, in their order, where a person gave them; empty otherwise.
        reward: the sum that they make, in words; empty as long as it is not known.
    """

    cutter: Cutter
    memory: Record = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    passed_over: dict[str, None] = field(default_factory=dict)
    words: bool = False
    weights: Sequence[float] = ()
    reward: str = ""

    def note(self, text: str) -> None:
        """Say something of the whole log, once."""
        self.notes.setdefault(text)

    def pass_over(self, record: Record, used: set[str]) -> None:
        """Remember the names of fields that are not read."""
        if len(self.passed_over) < MOST_NAMED:
            self.passed_over |= dict.fromkeys(sorted(record.keys() - used - self.passed_over.keys()))

    def tokens_of(self, text: Any, counted: bool = False) -> LogFields:
        """The text of a response and its tokens, as the cutter cuts it; what is no text goes on as it is, to be refused by its name.

        ``counted`` says that the record has the number of its tokens.
        """
        if not isinstance(text, str):
            return {"response": text}
        self.note(self.cutter.note)
        self.words |= self.cutter.words and not counted
        return {"response": text, **self.cutter.cut(text)}


Translate = Callable[[Sequence[Record], Reading], Iterator[tuple[int, LogFields]]]
"""Lines of our own kind from a batch of records, each with the number of its record in the batch."""


@dataclass(frozen=True)
class Form:
    """One form of log.

    Attributes:
        name: the program that writes it.
        what: what a person calls such a file, such as "verl's rollouts".
        needs: the fields that every record has.
        names: their names of fields that we call otherwise, ours -> theirs; errors speak of theirs.
        translate: makes lines of records.
    """

    name: str
    what: str
    needs: tuple[str, ...]
    translate: Translate
    names: dict[str, str] = field(default_factory=dict)

    def missing(self, record: Record) -> list[str]:
        """The fields that keep a record from being of this form; none for one that is."""
        return [name for name in self.needs if name not in record]


def each(line_of: Callable[[Record, Reading], LogFields | None]) -> Translate:
    """A reader for a form with one response in a record; None for a record that is left out."""

    def translate(records: Sequence[Record], reading: Reading) -> Iterator[tuple[int, LogFields]]:
        for number, record in enumerate(records):
            line = line_of(record, reading)
            if line is not None:
                yield number, line

    return translate


def is_number(value: Any) -> bool:
    """Whether a value counts as a number: true and false do, as 1 and 0."""
    return isinstance(value, int | float)


def numbers_in(record: Record, but: set[str]) -> dict[str, float]:
    """The fields that hold a number which is known, without those named in ``but``."""
    return {
        name: float(value)
        for name, value in record.items()
        if name not in but and is_number(value) and not (isinstance(value, float) and math.isnan(value))
    }
