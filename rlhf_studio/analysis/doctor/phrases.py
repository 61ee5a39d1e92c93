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
LONGEST_TEXT = 4000  # characters; more changes no share by much
PHRASE_WORDS = range(2, 6)


@lru_cache(maxsize=8192)
def words(text: str) -> tuple[str, ...]:
    """The words of a response, in order."""
    return tuple(_WORD.findall(text[:LONGEST_TEXT]))


@lru_cache(maxsize=8192)
def _repeats(text: str) -> float:
    found = words(text)
    fours = list(zip(found, found[1:], found[2:], found[3:], strict=False))
    again = 1 - len(set(fours)) / len(fours) if fours else 0.0
    doubled = sum(one == other for one, other in zip(found, found[1:], strict=False)) / (len(found) - 1) if len(found) > 1 else 0.0
    return max(again, doubled)


def repetition(rows: Sequence[RolloutRecord]) -> float:
    """Mean over responses of the larger of two shares: 4-grams that it had before, and words that follow themselves."""
    return float(np.mean([_repeats(row.response) for row in rows])) if rows else 0.0


def mean_words(rows: Sequence[RolloutRecord]) -> float:
    """Words in a response, on average."""
    return float(np.mean([len(words(row.response)) for row in rows])) if rows else 0.0


def distinct_pairs(rows: Sequence[RolloutRecord]) -> float:
    """Distinct word pairs among all word pairs of the responses (distinct-2)."""
    pairs = [pair for row in rows for pair in zip(words(row.response), words(row.response)[1:], strict=False)]
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
        verb: "ends" where it stands at the end of most responses that have it, "opens" at their beginning, else "is in".
        before, after: responses that have it, of ``before_of`` and ``after_of``.
        z: rise of the share over its standard deviation if there were no change (two proportions, pooled).
        sample: a response that has it now.
    """

    text: str
    verb: str
    before: int
    before_of: int
    after: int
    after_of: int
    z: float
    sample: int


@lru_cache(maxsize=8192)
def _phrases(text: str) -> frozenset[tuple[str, ...]]:
    found = words(text)
    grams = (found[at : at + size] for size in PHRASE_WORDS for at in range(len(found) - size + 1))
    return frozenset(gram for gram in grams if any(word[0].isalnum() for word in gram))


def rising(first: Sequence[RolloutRecord], newest: Sequence[RolloutRecord]) -> Rising | None:
    """The phrase whose share rose most in standard deviations; of equals the longest. None where no phrase is frequent."""
    before, after = (Counter(gram for row in rows for gram in _phrases(row.response)) for rows in (first, newest))
    candidates = [gram for gram, count in after.items() if 4 * count >= len(newest)]
    if not candidates:
        return None

    def strength(gram: tuple[str, ...]) -> tuple[float, int, tuple[str, ...]]:
        return (_z(before[gram], len(first), after[gram], len(newest)), sum(word[0].isalnum() for word in gram), gram)

    best = max(candidates, key=strength)
    z = _z(before[best], len(first), after[best], len(newest))
    having = [row for row in newest if best in _phrases(row.response)]
    return Rising(
        _text(best, having[0].response), _verb(best, having), before[best], len(first), after[best], len(newest), z, having[0].sample
    )


def _z(before: int, before_of: int, after: int, after_of: int) -> float:
    share = (before + after) / (before_of + after_of)
    spread = float(np.sqrt(share * (1 - share) * (1 / before_of + 1 / after_of)))
    return (after / after_of - before / before_of) / spread if spread else 0.0


def _verb(gram: tuple[str, ...], having: Sequence[RolloutRecord]) -> str:
    size, most = len(gram), len(having) / 2
    if sum(words(row.response)[-size:] == gram for row in having) > most:
        return "ends"
    return "opens" if sum(words(row.response)[:size] == gram for row in having) > most else "is in"


def _text(gram: tuple[str, ...], response: str) -> str:
    """The phrase as it stands in the response, without signs at its ends."""
    inner = list(gram)
    while len(inner) > 1 and not inner[-1][0].isalnum():
        inner.pop()
    while len(inner) > 1 and not inner[0][0].isalnum():
        inner.pop(0)
    pattern = r"\s*".join(re.escape(word) for word in inner)
    found = re.search(pattern, response)
    return re.sub(r"\s+", " ", found.group(0)) if found else " ".join(inner)
