"""Words of answers: how varied they are, how often they repeat themselves, and what differs between two answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

_WORDS = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
_PARTS = re.compile(r"\s*(?:\w+(?:['’]\w+)*|[^\w\s])|\s+")  # a word with the blank before it, so that blanks alone never match
REPEATED = 4
"""Words of a phrase whose repetition counts."""
MOST_WORDS = 2000
"""Of longer answers only so many words are compared: the time grows with the square."""
MOST_MATCHES = 20_000
"""Pairs of equal words of two answers that are looked at: some ten thousand in long plain texts, a hundred times that in chanting ones."""

Change = Literal["same", "only first", "only second"]


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text, in lower case."""
    return _WORDS.findall(text.lower())


def distinct(texts: Sequence[str], n: int) -> float | None:
    """Different sequences of n words as a share of all of them, over all texts together; None where there are none.

    It falls with the number of texts: compare it only between policies that gave equally many answers. After Li et al. 2016, "A
    Diversity-Promoting Objective Function for Neural Conversation Models".
    """
    grams = [gram for text in texts for gram in _grams(words(text), n)]
    return len(set(grams)) / len(grams) if grams else None


def repetition(text: str, n: int = REPEATED) -> float | None:
    """Share of a text's sequences of n words that stood in it before; None for a text of fewer than n words.

    Welleck et al. 2020, "Neural Text Generation with Unlikelihood Training": seq-rep-n.
    """
    grams = _grams(words(text), n)
    return 1 - len(set(grams)) / len(grams) if grams else None


def _grams(of: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(of[start : start + n]) for start in range(len(of) - n + 1)]


@dataclass(frozen=True)
class Piece:
    """A part of two texts: in both, or only in one of them."""

    change: Change
    text: str


def word_differences(first: str, second: str) -> list[Piece]:
    """What leads from the first text to the second, word by word.

    The pieces ``same`` and ``only first`` together are the first text, character by character; ``same`` and ``only second`` the second.
    Texts that say the same words again and again have no one word-by-word difference, and take time that grows with the third power of
    their length to compare: what they do not begin or end with alike is given as one change.
    """
    ours, theirs = (_split(text) for text in (first, second))
    pieces: list[Piece] = []
    for tag, a, b, c, d in _changes(ours, theirs):
        both: list[tuple[Change, str]] = (
            [("same", "".join(ours[a:b]))]
            if tag == "equal"
            else [("only first", "".join(ours[a:b])), ("only second", "".join(theirs[c:d]))]
        )
        pieces += [Piece(change, text) for change, text in both if text]
    return pieces


def _changes(ours: list[str], theirs: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """As ``SequenceMatcher.get_opcodes``; for parts with too many equal words a single replacement."""
    counts = Counter(theirs)
    if sum(counts[part] for part in ours if part.strip()) <= MOST_MATCHES:
        return SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    short = min(len(ours), len(theirs))
    start = next((index for index in range(short) if ours[index] != theirs[index]), short)
    end = next((index for index in range(short - start) if ours[-1 - index] != theirs[-1 - index]), short - start)
    a, b = len(ours) - end, len(theirs) - end
    changes = [("equal", 0, start, 0, start), ("replace", start, a, start, b), ("equal", a, len(ours), b, len(theirs))]
    return [change for change in changes if change[1] < change[2] or change[3] < change[4]]


def _split(text: str) -> list[str]:
    parts = _PARTS.findall(text)
    return [*parts[:MOST_WORDS], "".join(parts[MOST_WORDS:])] if len(parts) > MOST_WORDS else parts
