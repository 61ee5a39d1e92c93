"""Simple statistics of words in recorded responses: repetition, diversity, and the phrase that rose most.

Words are runs of letters or digits, single other signs, and single characters of scripts that put no spaces between words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from rlhf_studio.runs.records import RolloutRecord

# Chinese, Japanese kana, Korean, Thai: each character counts as a word.
_WORD = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_", re.UNICODE)
LONGEST_TEXT = 2000  # characters; more changes no share by much
PHRASE_WORDS = range(2, 9)
RARE = 0.1  # a single word counts as a phrase only if at most this share of the first responses has it: "I" is frequent anyway
SAME = 0.9  # a longer phrase is named instead of a shorter one, where at least this share of the responses with the shorter one has it
LONGEST_SHOWN = 80  # characters of a phrase
SHARE, RISE = 0.5, 0.35  # a phrase takes over when at least this share of the responses has it, and the share has risen by at least RISE
SURE = 4.0  # standard deviations; among the some hundred phrases of a step, 4 happen by chance about once in a hundred steps
CACHED = 1024  # results in memory, so that a run that is looked at again and again is not counted again

Words = tuple[str, ...]
Texts = tuple[str, ...]


def _texts(rows: Sequence[RolloutRecord]) -> Texts:
    return tuple(row.response[:LONGEST_TEXT] for row in rows)


def words(text: str) -> Words:
    """The words of a response, in order."""
    return tuple(_WORD.findall(text))


@lru_cache(maxsize=CACHED)
def _repeats(texts: Texts) -> tuple[float, ...]:
    def repeats(spoken: Words) -> float:
        fours = list(zip(spoken, spoken[1:], spoken[2:], spoken[3:], strict=False))
        again = 1 - len(set(fours)) / len(fours) if fours else 0.0
        doubled = sum(word == after for word, after in zip(spoken, spoken[1:], strict=False)) / max(1, len(spoken) - 1)
        return max(again, doubled)

    return tuple(repeats(words(text)) for text in texts)


def repetition(rows: Sequence[RolloutRecord]) -> float:
    """Mean over responses of the larger of two shares: 4-grams that it had before, and words that follow themselves."""
    return float(np.mean(_repeats(_texts(rows)))) if rows else 0.0


def mean_words(rows: Sequence[RolloutRecord]) -> float:
    """Words in a response, on average."""
    return float(np.mean([len(words(text)) for text in _texts(rows)])) if rows else 0.0


def distinct_pairs(rows: Sequence[RolloutRecord]) -> float:
    """Distinct word pairs among all word pairs of the responses (distinct-2)."""
    return _distinct_pairs(_texts(rows))


@lru_cache(maxsize=CACHED)
def _distinct_pairs(texts: Texts) -> float:
    pairs = [pair for spoken in map(words, texts) for pair in zip(spoken, spoken[1:], strict=False)]
    return len(set(pairs)) / len(pairs) if pairs else 1.0


def alike(rows: Sequence[RolloutRecord]) -> float:
    """Share of the responses that were given to another prompt too, word for word."""
    prompts: dict[str, set[str]] = {}
    for row in rows:
        prompts.setdefault(row.response.strip(), set()).add(row.prompt)
    return sum(len(prompts[row.response.strip()]) > 1 for row in rows) / len(rows) if rows else 0.0


@dataclass(frozen=True)
class CountedResponse:
    """A response whose words are counted; ``ended``: it ended by itself, and not at the length limit."""

    text: str
    words: Words
    ended: bool


def counted_response(text: str, ended: bool) -> CountedResponse:
    """A response with its words; only the beginning of a long one."""
    return CountedResponse(text[:LONGEST_TEXT], words(text[:LONGEST_TEXT]), ended and len(text) <= LONGEST_TEXT)


@dataclass(frozen=True)
class Rising:
    """The phrase whose share rose most.

    Attributes:
        text: as it stands in a response, without signs at its ends.
        words: the same as words.
        verb: "ends" where it stands at the end of most responses that have it (signs after it do not count), "opens" at their
            beginning, else "is in".
        before, after: responses of which the verb is true, of ``before_of`` and ``after_of``; only those that ended by themselves can
            end with a phrase.
        share, rise: its share of the newest responses wherever it stands in them, and how much more that is than at the start.
        z: the rise over its standard deviation if there were no change (two proportions, pooled).
    """

    text: str
    words: Words
    verb: str
    before: int
    before_of: int
    after: int
    after_of: int
    share: float
    rise: float
    z: float

    def stands_in(self, response: str) -> bool:
        """Whether a response has the phrase: at its end or beginning, if that is where the phrase stands, else anywhere."""
        return _is_at(self.verb, self.words, words(response))

    def token_index_in(self, pieces: Sequence[str]) -> int | None:
        """The index of the token at which the phrase begins in a response with these pieces; None where the response lacks the phrase.

        A phrase that ends responses is looked for at the end, every other from the beginning.
        """
        matches = list(re.finditer(_pattern(self.words), "".join(pieces)))
        if not matches:
            return None
        at = matches[-1 if self.verb == "ends" else 0].start()
        return int(np.searchsorted(np.cumsum([len(piece) for piece in pieces]), at, side="right"))

    @property
    def takes_over(self) -> bool:
        """Whether enough responses have it, and enough more than at the start."""
        return self.share >= SHARE and self.rise >= RISE and self.z > SURE


def rising(first: Sequence[CountedResponse], newest: Sequence[CountedResponse]) -> Rising | None:
    """The phrase whose share rose most, one that takes over before all others; None where no phrase is frequent.

    A longer phrase around it, which nearly as many responses have, is named instead.
    """
    after = _counts(newest)
    before = _counts(first, after)
    telling = [gram for gram in after if _real_words(gram) > 1 or (_real_words(gram) and before[gram] <= RARE * len(first))]
    if not telling:
        return None

    def rise_of(gram: Words) -> Rising:
        share = after[gram] / len(newest)
        z = _z(before[gram], len(first), after[gram], len(newest))
        inner = _without_signs(gram)
        return Rising("", inner, "is in", before[gram], len(first), after[gram], len(newest), share, share - before[gram] / len(first), z)

    def strength(gram: Words) -> tuple[bool, float, int, Words]:
        rise = rise_of(gram)
        return rise.takes_over, rise.z, _real_words(gram), gram

    strongest = max(telling, key=strength)
    wider = [gram for gram in telling if after[gram] >= SAME * after[strongest] and _is_at("is in", strongest, gram)]
    best = max(wider, key=lambda gram: (strength(gram)[0], _real_words(gram), strength(gram)))
    phrase, having = rise_of(best), [response for response in newest if _is_at("is in", best, response.words)]
    phrase = replace(phrase, text=_as_written(phrase.words, having[0].text), verb=_verb(phrase.words, having))
    if phrase.verb == "is in":
        return phrase
    (had, had_of), (has, has_of) = (_counted(phrase.verb, phrase.words, side) for side in (first, newest))
    return replace(phrase, before=had, before_of=had_of, after=has, after_of=has_of)


def _counts(texts: Sequence[CountedResponse], among: Collection[Words] | None = None) -> Counter[Words]:
    """How many texts have each of these phrases; without ``among``, each that at least a quarter of the texts have.

    A phrase is frequent only if the phrases without its last and without its first word are, so longer phrases are searched only there.
    Words are numbered, and so are the phrases of each size. The key of a phrase is made of the number of the phrase without its last word
    and the number of that word.
    """
    spoken = [word for response in texts for word in response.words]
    number_of_word = {word: number for number, word in enumerate(dict.fromkeys(spoken))}
    words_as_numbers = np.array([number_of_word[word] for word in spoken], np.int64)
    text = np.repeat(np.arange(len(texts)), [len(response.words) for response in texts])
    at, phrase = np.arange(len(words_as_numbers)), words_as_numbers  # where phrases of the size before begin, and which
    numbers: dict[Words, int] = {(word,): number for word, number in number_of_word.items()}
    counts_of: Counter[Words] = Counter()
    for size in PHRASE_WORDS:
        follows = np.flatnonzero((np.diff(at) == 1) & (at[:-1] + size <= len(words_as_numbers)))
        follows = follows[text[at[follows]] == text[at[follows] + size - 1]]
        at, keys = at[follows], phrase[follows] * len(number_of_word) + words_as_numbers[at[follows] + size - 1]
        phrase, first, counts = _in_texts(keys, text[at])
        if among is None:
            often = np.flatnonzero(4 * counts >= len(texts)).tolist()
            frequent = {tuple(spoken[at[first[number]] : at[first[number]] + size]): number for number in often}
        else:
            number_of = dict(zip(keys[first].tolist(), range(len(first)), strict=True))
            grams = [gram for gram in among if len(gram) == size and gram[:-1] in numbers and gram[-1] in number_of_word]
            of_gram = {gram: numbers[gram[:-1]] * len(number_of_word) + number_of_word[gram[-1]] for gram in grams}
            frequent = {gram: number_of[key] for gram, key in of_gram.items() if key in number_of}
        counts_of.update({gram: int(counts[number]) for gram, number in frequent.items()})
        alive = np.isin(phrase, list(frequent.values()))
        at, phrase, numbers = at[alive], phrase[alive], frequent
    return counts_of


def _in_texts(keys: np.ndarray, text: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number the different keys. ``text``, the text of each key, must be ascending.

    Returns (the number of each key, the first index of each number, in how many texts each number occurs).
    """
    order = np.argsort(keys, kind="stable")
    begins = np.diff(keys[order], prepend=-1) != 0  # keys are not negative
    numbers = np.cumsum(begins) - 1
    once = begins | (np.diff(text[order], prepend=-1) != 0)
    phrase = np.empty(len(keys), np.int64)
    phrase[order] = numbers
    return phrase, order[begins], np.bincount(numbers[once], minlength=int(begins.sum()))


def _real_words(gram: Words) -> int:
    return sum(word[0].isalnum() for word in gram)


def _counted(verb: str, inner: Words, texts: Sequence[CountedResponse]) -> tuple[int, int]:
    """(responses of which the verb is true, of how many)."""
    able = [text for text in texts if text.ended] if verb == "ends" else texts
    return sum(_is_at(verb, inner, text.words) for text in able), len(able)


def _is_at(verb: str, inner: Words, spoken: Words) -> bool:
    if verb == "is in":
        return any(spoken[at : at + len(inner)] == inner for at in range(len(spoken) - len(inner) + 1))
    bare = _without_signs(spoken) if spoken else spoken
    return bare[-len(inner) :] == inner if verb == "ends" else bare[: len(inner)] == inner


def _z(before: int, before_of: int, after: int, after_of: int) -> float:
    share = (before + after) / (before_of + after_of)
    spread = float(np.sqrt(share * (1 - share) * (1 / before_of + 1 / after_of)))
    return (after / after_of - before / before_of) / spread if spread else 0.0


def _without_signs(gram: Words) -> Words:
    """Without signs at both ends; at least one word stays."""
    first, last = 0, len(gram)
    while last - first > 1 and not gram[last - 1][0].isalnum():
        last -= 1
    while last - first > 1 and not gram[first][0].isalnum():
        first += 1
    return gram[first:last]


def _verb(inner: Words, having: Sequence[CountedResponse]) -> str:
    most = len(having) / 2
    if sum(text.ended and _is_at("ends", inner, text.words) for text in having) > most:
        return "ends"
    return "opens" if sum(_is_at("opens", inner, text.words) for text in having) > most else "is in"


def _pattern(inner: Words) -> str:
    return r"\s*".join(re.escape(word) for word in inner)


def _as_written(inner: Words, response: str) -> str:
    """The phrase as it stands in the response, without what no screen shows."""
    match = re.search(_pattern(inner), response)
    text = "".join(sign if sign.isprintable() else " " for sign in (match[0] if match else " ".join(inner)))
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"
