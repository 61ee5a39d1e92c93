"""Simple statistics of words in recorded responses: repetition, diversity, and the phrase that rose most.

Words are runs of letters or digits, single other signs, and single characters of scripts that put no spaces between words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rlhf_studio.runs.records import RolloutRecord

# Chinese, Japanese kana, Korean, Thai: each character counts as a word.
_WORD = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_", re.UNICODE)
LONGEST_TEXT = 2000  # characters; more changes no share by much
PHRASE_WORDS = range(2, 6)
LONGEST_SHOWN = 80  # characters of a phrase
KEPT = 1024  # results kept, so that a run that is looked at again and again is not counted again

Words = tuple[str, ...]
Texts = tuple[str, ...]


def _texts(rows: Sequence[RolloutRecord]) -> Texts:
    return tuple(row.response[:LONGEST_TEXT] for row in rows)


def words(text: str) -> Words:
    """The words of a response, in order."""
    return tuple(_WORD.findall(text))


@lru_cache(maxsize=KEPT)
def _repeats(texts: Texts) -> tuple[float, ...]:
    def one(found: Words) -> float:
        fours = list(zip(found, found[1:], found[2:], found[3:], strict=False))
        again = 1 - len(set(fours)) / len(fours) if fours else 0.0
        doubled = sum(one == other for one, other in zip(found, found[1:], strict=False)) / (len(found) - 1) if len(found) > 1 else 0.0
        return max(again, doubled)

    return tuple(one(words(text)) for text in texts)


def repetition(rows: Sequence[RolloutRecord]) -> float:
    """Mean over responses of the larger of two shares: 4-grams that it had before, and words that follow themselves."""
    return float(np.mean(_repeats(_texts(rows)))) if rows else 0.0


def mean_words(rows: Sequence[RolloutRecord]) -> float:
    """Words in a response, on average."""
    return float(np.mean([len(words(text)) for text in _texts(rows)])) if rows else 0.0


def distinct_pairs(rows: Sequence[RolloutRecord]) -> float:
    """Distinct word pairs among all word pairs of the responses (distinct-2)."""
    return _distinct_pairs(_texts(rows))


@lru_cache(maxsize=KEPT)
def _distinct_pairs(texts: Texts) -> float:
    pairs = [pair for found in map(words, texts) for pair in zip(found, found[1:], strict=False)]
    return len(set(pairs)) / len(pairs) if pairs else 1.0


def alike(rows: Sequence[RolloutRecord]) -> float:
    """Share of the responses that were given to another prompt too, word for word."""
    prompts: dict[str, set[str]] = {}
    for row in rows:
        prompts.setdefault(row.response.strip(), set()).add(row.prompt)
    return sum(len(prompts[row.response.strip()]) > 1 for row in rows) / len(rows) if rows else 0.0


@dataclass(frozen=True)
class Rising:
    """The phrase whose share rose most.

    Attributes:
        verb: "ends" where it stands at the end of most responses that have it (signs after it do not count), "opens" at their
            beginning, else "is in".
        before, after: responses that have it, of ``before_of`` and ``after_of``.
        z: rise of the share over its standard deviation if there were no change (two proportions, pooled).
        row: the first of the newest responses that has it.
    """

    text: str
    verb: str
    before: int
    before_of: int
    after: int
    after_of: int
    z: float
    row: int


def rising(first: Sequence[RolloutRecord], newest: Sequence[RolloutRecord]) -> Rising | None:
    """The phrase whose share rose most in standard deviations; of equals the longest. None where no phrase is frequent."""
    return _rising(_texts(first), _texts(newest))


@lru_cache(maxsize=KEPT)
def _rising(first: Texts, newest: Texts) -> Rising | None:
    before, after = _counts(first), _counts(newest)
    candidates = [gram for gram, count in after.items() if 4 * count >= len(newest)]
    if not candidates:
        return None

    def strength(gram: Words) -> tuple[float, int, Words]:
        return (_z(before[gram], len(first), after[gram], len(newest)), sum(word[0].isalnum() for word in gram), gram)

    best = max(candidates, key=strength)
    z = _z(before[best], len(first), after[best], len(newest))
    having = [row for row, text in enumerate(newest) if best in _phrases(text)]
    verb = _verb(best, [words(newest[row]) for row in having])
    return Rising(_shown(best, newest[having[0]]), verb, before[best], len(first), after[best], len(newest), z, having[0])


@lru_cache(maxsize=4)
def _counts(texts: Texts) -> Counter[Words]:
    """In how many of the texts each phrase is."""
    return Counter(gram for text in texts for gram in _phrases(text))


def _phrases(text: str) -> set[Words]:
    found = words(text)
    grams = (found[at : at + size] for size in PHRASE_WORDS for at in range(len(found) - size + 1))
    return {gram for gram in grams if any(word[0].isalnum() for word in gram)}


def _z(before: int, before_of: int, after: int, after_of: int) -> float:
    share = (before + after) / (before_of + after_of)
    spread = float(np.sqrt(share * (1 - share) * (1 / before_of + 1 / after_of)))
    return (after / after_of - before / before_of) / spread if spread else 0.0


def _without_signs(found: Words) -> Words:
    """Without signs at both ends; at least one word stays."""
    first, last = 0, len(found)
    while last - first > 1 and not found[last - 1][0].isalnum():
        last -= 1
    while last - first > 1 and not found[first][0].isalnum():
        first += 1
    return found[first:last]


def _verb(gram: Words, having: Sequence[Words]) -> str:
    inner, most = _without_signs(gram), len(having) / 2
    texts = [_without_signs(found) for found in having]
    if sum(found[-len(inner) :] == inner for found in texts) > most:
        return "ends"
    return "opens" if sum(found[: len(inner)] == inner for found in texts) > most else "is in"


def _shown(gram: Words, response: str) -> str:
    """The phrase as it stands in the response, without signs at its ends and without what no screen shows."""
    inner = _without_signs(gram)
    found = re.search(r"\s*".join(re.escape(word) for word in inner), response)
    text = "".join(sign if sign.isprintable() else " " for sign in (found[0] if found else " ".join(inner)))
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
