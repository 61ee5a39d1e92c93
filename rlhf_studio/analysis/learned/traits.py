"""Properties of the responses as a whole, step by step: length, how they end, repetition, diversity."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.learned.chance import LEVEL, p_values
from rlhf_studio.analysis.learned.responses import Corpus, responses_of
from rlhf_studio.analysis.records import Trait
from rlhf_studio.language import N_, _

SPAN = 3
"""Tokens of the n-grams that repetition and overlap count."""
TRAITS = (
    ("length", N_("Response length"), "tokens"),
    ("stopped", N_("Ended by themselves"), "share"),
    ("repetition", N_("Repetition within a response"), "share"),
    ("overlap", N_("In common with other responses of the step"), "share"),
    ("duplicates", N_("The same as another response of the step"), "share"),
)
"""Name, title and unit of each, in the order of the rows of :func:`by_step`.

``length`` counts the stop token too, as the metric of this name does. ``repetition`` is 1 - distinct-3 (Li et al. 2016, "A
Diversity-Promoting Objective Function for Neural Conversation Models") of single responses, averaged: the share of a response's sequences
of three tokens that came before in it. ``overlap`` is how likely such a sequence of one response is found in another response of the same
step, drawn at random; unlike the number of distinct sequences it does not depend on how many responses there are. ``duplicates`` does: of
responses that another one of the step repeats token for token.
"""
GROW_WITH_LENGTH = ("repetition", "overlap")
"""Longer responses have more of these by themselves, in proportion to their length where words are drawn at random."""


def changed_traits(corpus: Corpus, first: int, last: int, counted: str = "tokens") -> list[Trait]:
    """All traits over the ``first`` and the ``last`` steps, and whether each changed more than chance explains.

    ``counted`` is what lengths count.
    """
    values = by_step(corpus)
    known = ~np.isnan(values).all(axis=1)
    sure = _sure(values, first, last)
    traits = []
    for index, (name, title, unit) in enumerate(TRAITS):
        before, after = (_mean(values[index, part]) for part in (slice(None, first), slice(-last, None)))
        if known[index] and before is not None and after is not None:
            traits.append(Trait(name, _(title), counted if name == "length" else unit, before, after, changed=bool(sure[index])))
    return traits


def _sure(values: np.ndarray, first: int, last: int) -> np.ndarray:
    """Whether each trait changed by more than chance, and those of :data:`GROW_WITH_LENGTH` by more than the length alone explains."""
    tokens = values[0] - np.nan_to_num(values[1])  # without the stop token
    per_token = values / np.where(tokens > 0, tokens, np.nan)
    sure: np.ndarray = p_values(values) <= LEVEL
    grow = np.isin([name for name, *rest in TRAITS], GROW_WITH_LENGTH)
    both = (p_values(per_token) <= LEVEL) & (_direction(values, first, last) == _direction(per_token, first, last))
    sure &= both | ~grow
    return sure


def _direction(values: np.ndarray, first: int, last: int) -> np.ndarray:
    filled = np.nan_to_num(values)
    direction: np.ndarray = np.sign(filled[:, -last:].mean(axis=1) - filled[:, :first].mean(axis=1))
    return direction


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def by_step(corpus: Corpus) -> np.ndarray:
    """The traits of each step, shape (number of traits, S); NaN where a step has none, such as no response of three tokens."""
    steps, responses = len(corpus.steps), len(corpus.lengths)
    count = corpus.per_step()
    known = corpus.per_step(corpus.end_known)
    stopped = np.where(known > 0, corpus.per_step(corpus.stopped) / np.maximum(known, 1), np.nan)
    length = np.bincount(corpus.row, corpus.lengths, steps) / count + corpus.per_step(corpus.stopped) / count
    response = np.repeat(np.arange(responses), corpus.lengths)
    spans = _spans(corpus, response)
    pairs = np.unique(np.stack([response[: len(spans)][spans >= 0], spans[spans >= 0]]), axis=1)
    total = np.bincount(response[: len(spans)][spans >= 0], minlength=responses)
    distinct = np.bincount(pairs[0], minlength=responses)
    long = total > 0
    repeated = np.bincount(corpus.row[long], 1 - distinct[long] / total[long], steps)
    repetition = repeated / np.where(corpus.per_step(long) > 0, corpus.per_step(long), np.nan)
    return np.stack([length, stopped, repetition, _overlap(corpus, pairs, count), _duplicates(corpus, count)])


def _spans(corpus: Corpus, response: np.ndarray) -> np.ndarray:
    """A number for the sequence that begins at each position, shape (T - 2,); -1 where the response ends before."""
    size = len(corpus.ids) - SPAN + 1
    if size <= 0:
        return np.zeros(0, np.int64)
    keys = corpus.ids[:size].copy()
    for offset in range(1, SPAN):
        keys = np.unique(keys, return_inverse=True)[1] * len(corpus.pieces) + corpus.ids[offset : offset + size]
    return np.where(response[:size] == response[SPAN - 1 :], np.unique(keys, return_inverse=True)[1], -1)


def _overlap(corpus: Corpus, pairs: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Sum over sequences of c (c - 1), over (N - 1) times the sum of c; c of a step's N responses have the sequence."""
    steps = len(corpus.steps)
    keys, has = np.unique(corpus.row[pairs[0]] * (pairs[1].max(initial=0) + 1) + pairs[1], return_counts=True)
    row = keys // (pairs[1].max(initial=0) + 1)
    shared, possible = np.bincount(row, has * (has - 1), steps), np.bincount(row, has, steps) * (count - 1)
    return np.where(possible > 0, shared / np.where(possible > 0, possible, 1), np.nan)


def _duplicates(corpus: Corpus, count: np.ndarray) -> np.ndarray:
    texts: dict[tuple[int, bytes], int] = {}
    rows = corpus.row.tolist()
    keys = [(row, ids.tobytes()) for row, ids in zip(rows, responses_of(corpus.ids, corpus.lengths), strict=True)]
    for key in keys:
        texts[key] = texts.get(key, 0) + 1
    repeats = np.array([texts[key] > 1 for key in keys], bool)
    return np.where(count > 1, np.bincount(corpus.row, repeats, len(corpus.steps)) / count, np.nan)
