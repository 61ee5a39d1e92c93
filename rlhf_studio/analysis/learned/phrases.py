"""The phrases whose frequency changed over a run by more than chance explains, as people read them.

In three parts. First, which phrases may be claimed at all: their shares over all kept steps go through the permutation test of
:mod:`rlhf_studio.analysis.learned.chance`, together. So do their numbers per token, since longer responses have more of everything: a
phrase is claimed only when both changed, in the same direction. Phrases whose counts scatter over the steps no more than the draw of
responses alone makes them are left out before, which is fair because that scatter is the same in any order of the steps. Then how
strongly: the log-odds of the last tenth against the first under a prior, with its standard deviation. And last, which to show: of phrases
that overlap, one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.learned.chance import LEVEL, p_values
from rlhf_studio.analysis.learned.ngrams import ANYWHERE, ENDING, PhraseTable, count_phrases, marks
from rlhf_studio.analysis.learned.responses import PARTIAL, Corpus

MOST_PHRASES = 10
MOST_CLAIMED = 400
"""The strongest claims that are compared with each other for showing."""
MOST_TESTED = 2000
SCATTER = 2.0
"""In standard deviations of what the draw of responses explains: phrases that scatter less over the steps are not tested."""
LEAST_Z = 3.0
PRIOR = 10.0
"""Strength of the prior, in responses."""
SAME = 0.85
"""A phrase is only part of a longer one when this share of its responses has the longer one."""
SHARED = 0.6
"""Of two phrases that overlap, the weaker is not shown when this share of its responses has the stronger one too."""
SPACED = 0.2
"""Where this share of the tokens begins with a space, words begin with a space."""


@dataclass(frozen=True)
class ChangedPhrase:
    """A phrase that may be shown. ``tokens`` are ids of the corpus; ``before`` and ``after`` are (responses that have it, of how many)."""

    tokens: tuple[int, ...]
    location: int
    before: tuple[int, int]
    after: tuple[int, int]
    log_odds: float
    z: float
    has: np.ndarray
    """Which responses of the side where it is more frequent have it."""


def log_odds(before: np.ndarray, before_of: np.ndarray, after: np.ndarray, after_of: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Log of the odds ratio, after over before, and its z-score; shape (2, ...).

    The weighted log-odds ratio with an informative prior of Monroe, Colaresi and Quinn (2008), "Fightin' Words", equations 16, 19, 20 and
    22, for responses that have a phrase or not: a beta prior of :data:`PRIOR` responses around ``share``, the phrase's share of all
    responses of the run. The variance counts the responses without the phrase too; the paper's words are so rare that it need not.
    """
    has, lacks = PRIOR * share, PRIOR * (1 - share)
    cells = [(after + has), (after_of - after + lacks), (before + has), (before_of - before + lacks)]
    ratio = np.log(cells[0] / cells[1]) - np.log(cells[2] / cells[3])
    return np.stack([ratio, ratio / np.sqrt(sum(1 / cell for cell in cells))])


def changed_phrases(
    corpus: Corpus, side: int, legible: Callable[[tuple[int, ...]], bool] = lambda tokens: True, first: int = 0
) -> list[ChangedPhrase]:
    """The phrases that changed most, strongest first.

    Args:
        side: how many steps count as the last ones.
        legible: whether people can read these ids of the corpus; asked of phrases that hold parts of characters.
        first: how many steps count as the first ones; 0: as many as the last.
    """
    first = first or side
    table = readable(count_phrases(corpus), corpus)
    of = np.stack([corpus.per_step(), corpus.per_step(), corpus.per_step(corpus.stopped)])[table.location]
    total, all_of = table.counts.sum(axis=1), of.sum(axis=1)
    worth = np.argsort(-_scatter(table.counts, of), kind="stable")[:MOST_TESTED]
    worth = worth[_scatter(table.counts, of)[worth] > SCATTER]
    table, of, total, all_of = table.chosen(worth), of[worth], total[worth], all_of[worth]
    shares = np.where(of > 0, table.counts / np.maximum(of, 1), np.nan)
    before, before_of = table.counts[:, :first].sum(axis=1), of[:, :first].sum(axis=1)
    after, after_of = table.counts[:, -side:].sum(axis=1), of[:, -side:].sum(axis=1)
    sure = (p_values(shares) <= LEVEL) & _changed_per_token(table, corpus, (first, side))
    ratio, z = log_odds(before, before_of, after, after_of, total / np.maximum(all_of, 1))
    chosen = np.flatnonzero(sure & (np.abs(z) >= LEAST_Z))
    chosen = chosen[np.argsort(-np.abs(z[chosen]), kind="stable")][:MOST_CLAIMED]
    occurrences = Occurrences(corpus, (first, side))
    claims = []
    for index in chosen:
        tokens = tuple(corpus.ids[table.first[index] : table.first[index] + table.length[index]].tolist())
        parts = any(PARTIAL in corpus.pieces[token] for token in tokens)
        if occurrences.ends_inside_word(tokens) or (parts and not legible(tokens)):
            continue
        numbers = ((int(before[index]), int(before_of[index])), (int(after[index]), int(after_of[index])))
        has = occurrences.has(tokens, int(table.location[index]), bool(z[index] > 0))
        claims.append(ChangedPhrase(tokens, int(table.location[index]), *numbers, float(ratio[index]), float(z[index]), has))
    return distinct(claims)


def _changed_per_token(table: PhraseTable, corpus: Corpus, sides: tuple[int, int]) -> np.ndarray:
    """Whether each phrase's number per token changed, and in the direction of its number per response; of openings and endings: yes."""
    anywhere = table.location == ANYWHERE
    tokens = np.bincount(corpus.row, corpus.lengths, len(corpus.steps))
    responses = corpus.per_step()
    rates = table.uses[anywhere] / np.maximum(1, tokens)
    changes = [_change(values, of, *sides) for values, of in ((table.uses[anywhere], tokens), (table.counts[anywhere], responses))]
    result = np.ones(len(anywhere), bool)
    result[anywhere] = (p_values(rates) <= LEVEL) & (changes[0] * changes[1] > 0)
    return result


def _change(values: np.ndarray, of: np.ndarray, first: int, last: int) -> np.ndarray:
    now: np.ndarray = values[:, -last:].sum(axis=1) / max(1, of[-last:].sum())
    change: np.ndarray = now - values[:, :first].sum(axis=1) / max(1, of[:first].sum())
    return change


def readable(table: PhraseTable, corpus: Corpus) -> PhraseTable:
    """The phrases that begin and end with a word, or are marks alone, and do not begin inside a word."""
    if not len(table.first):
        return table
    mark = marks(corpus)
    last = table.first + table.length - 1
    runs = np.concatenate([[0], np.cumsum(mark)])
    only_marks = runs[last + 1] - runs[table.first] == table.length
    of_words = ~mark[table.first] & ~mark[last]
    spaced = np.array([piece[:1].isspace() for piece in corpus.pieces], bool)[corpus.ids]
    begins = spaced[table.first] | (table.location == 1) | (spaced.mean() < SPACED)
    blank = np.array([not piece.strip() for piece in corpus.pieces], bool)[corpus.ids]
    empty = (table.length == 1) & blank[table.first]
    return table.chosen(((of_words & begins) | (only_marks & (table.location == ANYWHERE))) & ~empty)


def _scatter(counts: np.ndarray, of: np.ndarray) -> np.ndarray:
    """How far counts scatter over the steps beyond the binomial, in standard deviations of chi-squared, shape (P,)."""
    share = counts.sum(axis=1, keepdims=True) / np.maximum(1, of.sum(axis=1, keepdims=True))
    expected = of * share
    variance = expected * (1 - share)
    squared = np.where(variance > 0, (counts - expected) ** 2 / np.where(variance > 0, variance, 1.0), 0.0).sum(axis=1)
    free = max(1, counts.shape[1] - 1)
    scatter: np.ndarray = (squared - free) / np.sqrt(2 * free)
    return scatter


class Occurrences:
    """Where phrases stand in the responses of the first and the last steps."""

    def __init__(self, corpus: Corpus, sides: tuple[int, int]):
        self._corpus = corpus
        first, last = sides
        last_row = len(corpus.steps) - last
        self._sides = [self._positions(corpus.row < first), self._positions(corpus.row >= last_row)]
        self._response = np.repeat(np.arange(len(corpus.lengths)), corpus.lengths)
        self._left = np.repeat(corpus.starts + corpus.lengths, corpus.lengths) - np.arange(len(corpus.ids))
        mark = marks(corpus)
        self._continues = np.array([bool(piece) and piece[0].isalnum() for piece in corpus.pieces], bool)[corpus.ids] & ~mark
        spaced = np.array([piece[:1].isspace() for piece in corpus.pieces], bool)[corpus.ids]
        self._has_spaces = spaced.mean() >= SPACED if len(spaced) else False
        rest = np.concatenate([np.cumsum(~mark[::-1])[::-1], [0]]) if len(mark) else np.zeros(1, int)
        self._words_from = rest  # words from a position to the end of all responses

    def _positions(self, which: np.ndarray) -> np.ndarray:
        corpus = self._corpus
        return np.flatnonzero(np.repeat(which, corpus.lengths))

    def _starts(self, tokens: tuple[int, ...], positions: np.ndarray) -> np.ndarray:
        ids = self._corpus.ids
        at: np.ndarray = positions[self._left[positions] >= len(tokens)]
        for offset, token in enumerate(tokens):
            at = at[ids[at + offset] == token]
        return at

    def has(self, tokens: tuple[int, ...], location: int, after: bool) -> np.ndarray:
        """The numbers of the responses that have the phrase at this location, of the last steps (``after``) or of the first ones."""
        at = self._starts(tokens, self._sides[after])
        response = self._response[at]
        if location == ENDING:
            end = self._corpus.starts[response] + self._corpus.lengths[response]
            at_end = self._words_from[at + len(tokens)] == self._words_from[end]
            response = response[at_end & self._corpus.stopped[response]]
        elif location != ANYWHERE:
            response = response[at == self._corpus.starts[response]]
        return np.unique(response)

    def ends_inside_word(self, tokens: tuple[int, ...]) -> bool:
        """Whether what follows the phrase mostly goes on with its last word; known only where words begin with a space."""
        if not self._has_spaces:
            return False
        at = np.concatenate([self._starts(tokens, positions) for positions in self._sides])
        followed = at[self._left[at] > len(tokens)] + len(tokens)
        return bool(len(at)) and 2 * int(self._continues[followed].sum()) > len(at)


def distinct(claims: list[ChangedPhrase]) -> list[ChangedPhrase]:
    """Of phrases that overlap, the one that says it best; the strongest first, at most :data:`MOST_PHRASES`."""
    chosen: list[ChangedPhrase] = []
    for claim in claims:
        claim = _widest(claim, claims)
        if not any(_repeats(claim, stronger) for stronger in chosen):
            chosen.append(claim)
        if len(chosen) == MOST_PHRASES:
            break
    return sorted(chosen, key=lambda claim: -abs(claim.z))


def _widest(claim: ChangedPhrase, claims: list[ChangedPhrase]) -> ChangedPhrase:
    """The longest phrase that contains this one and is in nearly the same responses; or this phrase as an opening or ending."""
    wider = [
        other
        for other in claims
        if _contains(other.tokens, claim.tokens)
        and (other.z > 0) == (claim.z > 0)
        and _share(other.has, of=claim.has) >= SAME
        and abs(other.z) >= SAME * abs(claim.z)
    ]
    return max([claim, *wider], key=lambda other: (len(other.tokens), other.location != ANYWHERE, abs(other.z)))


def _repeats(claim: ChangedPhrase, stronger: ChangedPhrase) -> bool:
    if (claim.z > 0) != (stronger.z > 0):
        return False
    overlap = _contains(stronger.tokens, claim.tokens) or _contains(claim.tokens, stronger.tokens) or _meet(claim.tokens, stronger.tokens)
    return overlap and (_share(stronger.has, of=claim.has) >= SHARED or _contains(claim.tokens, stronger.tokens))


def _share(these: np.ndarray, of: np.ndarray) -> float:
    return float(np.isin(of, these).mean()) if len(of) else 0.0


def _contains(longer: tuple[int, ...], shorter: tuple[int, ...]) -> bool:
    return any(longer[start : start + len(shorter)] == shorter for start in range(len(longer) - len(shorter) + 1))


def _meet(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether the end of one is the beginning of the other."""
    sizes = range(1, min(len(first), len(second)) + 1)
    return any(first[-size:] == second[:size] or second[-size:] == first[:size] for size in sizes)
