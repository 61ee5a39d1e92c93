"""Counting phrases: n-grams of 1 to :data:`LONGEST` tokens, once per response, by step; anywhere, as an opening and as an ending."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.learned.responses import Corpus

LONGEST = 12
"""In tokens; four characters of a script whose characters a byte-level tokenizer cuts in three."""
LEAST_SHARE = 0.005
LEAST_COUNT = 4
"""A phrase must be in so many responses of all kept steps together, and in :data:`LEAST_SHARE` of them."""
ANYWHERE, OPENING, ENDING = 0, 1, 2


@dataclass(frozen=True)
class PhraseTable:
    """P phrases and how many responses of each of S steps have them.

    Attributes:
        first: where in the corpus' ids the phrase stands for the first time, shape (P,).
        length: its tokens, shape (P,).
        location: :data:`ANYWHERE`, :data:`OPENING` or :data:`ENDING`, shape (P,).
        counts: responses, shape (P, S).
        uses: how often the phrase stands there in all, shape (P, S); more than ``counts`` where a response has it twice.
    """

    first: np.ndarray
    length: np.ndarray
    location: np.ndarray
    counts: np.ndarray
    uses: np.ndarray

    def chosen(self, which: np.ndarray) -> PhraseTable:
        """These phrases alone, by a mask or by their indices."""
        return PhraseTable(self.first[which], self.length[which], self.location[which], self.counts[which], self.uses[which])


def count_phrases(corpus: Corpus) -> PhraseTable:
    """All phrases that are frequent enough to be looked at.

    An ending is what stands last in a response that ended by itself, punctuation marks behind it aside. An n-gram can only be frequent
    where the two (n-1)-grams in it are, so longer ones are looked for only there.
    """
    size, steps, responses = len(corpus.ids), len(corpus.steps), len(corpus.lengths)
    response = np.repeat(np.arange(responses), corpus.lengths)
    left = np.repeat(corpus.starts + corpus.lengths, corpus.lengths) - np.arange(size)  # tokens from here to the end of the response
    opens, ends = corpus.starts[corpus.lengths > 0], ending_positions(corpus)
    least = max(LEAST_COUNT, LEAST_SHARE * responses)
    grams, at, tables = corpus.ids, np.arange(size), []
    for length in range(1, LONGEST + 1):
        if length > 1:
            at = at[(left[at] >= length) & (grams[at] >= 0)]
            at = at[grams[at + 1] >= 0]
            if not len(at):
                break
            keys = grams[at] * (grams.max() + 1) + grams[at + 1]
            number = np.unique(keys, return_inverse=True)[1]
        else:
            number = grams
        pairs = np.unique(number * responses + response[at])  # a phrase and a response that has it, once
        phrase, row = pairs // responses, corpus.row[pairs % responses]
        frequent = np.bincount(phrase) >= least
        renumbered = np.where(frequent, np.cumsum(frequent) - 1, -1)
        grams = np.full(size, -1)
        grams[at] = renumbered[number]
        count = int(frequent.sum())
        if not count:
            break
        is_frequent, starts = frequent[phrase], at[grams[at] >= 0]
        first = np.zeros(count, np.int64)
        first[grams[starts[::-1]]] = starts[::-1]  # backwards, so that the first occurrence is written last
        counts = _by_step(renumbered[phrase[is_frequent]], row[is_frequent], count, steps)
        uses = _by_step(grams[starts], corpus.row[response[starts]], count, steps)
        tables.append(PhraseTable(first, np.full(count, length), np.full(count, ANYWHERE), counts, uses))
        for location, spots in ((OPENING, opens), (ENDING, ends - length)):
            spots = spots[spots >= 0]
            spots = spots[grams[spots] >= 0]  # elsewhere no frequent phrase begins that ends within its response
            counts = _by_step(grams[spots], corpus.row[response[spots]], count, steps)
            tables.append(PhraseTable(first, np.full(count, length), np.full(count, location), counts, counts))
    if not tables:
        nothing = np.zeros(0, np.int64)
        return PhraseTable(nothing, nothing, nothing, *np.zeros((2, 0, steps), np.int64))
    names = ("first", "length", "location", "counts", "uses")
    table = PhraseTable(*(np.concatenate([getattr(part, name) for part in tables]) for name in names))
    return table.chosen(table.counts.sum(axis=1) >= least)


def _by_step(phrase: np.ndarray, row: np.ndarray, phrases: int, steps: int) -> np.ndarray:
    counts: np.ndarray = np.bincount(phrase * steps + row, minlength=phrases * steps).reshape(phrases, steps)
    return counts


def is_mark(piece: str) -> bool:
    """Whether a piece has nothing but punctuation, spaces and signs of arithmetic; emoji and parts of a character are none of these."""
    return all(unicodedata.category(character)[0] in "PZC" or unicodedata.category(character) in ("Sm", "Sc", "Sk") for character in piece)


def marks(corpus: Corpus) -> np.ndarray:
    """Which of the corpus' tokens are marks, shape (T,)."""
    are_marks: np.ndarray = np.array([is_mark(piece) for piece in corpus.pieces], bool)[corpus.ids]
    return are_marks


def ending_positions(corpus: Corpus) -> np.ndarray:
    """For each response that ended by itself and has a word: the index behind its last word."""
    full = corpus.lengths > 0
    if not full.any():
        return np.zeros(0, np.int64)
    words = np.where(marks(corpus), -1, np.arange(len(corpus.ids)))
    last = np.maximum.reduceat(words, corpus.starts[full])
    behind: np.ndarray = last[corpus.stopped[full] & (last >= 0)] + 1
    return behind
