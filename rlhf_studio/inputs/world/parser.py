"""The parser of reviews: how much of any text the grammar accepts, and which opinions its well-formed sentences hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rlhf_studio.inputs.world.grammar import MAX_SENTENCES, RULES, Part, Phrase

LONGEST_TEXT = 20_000
"""Characters of a text that are parsed, the rest is left out; a review has about 170."""

_TOKEN = re.compile(r"[\w']+|[^\w\s]")
_END_MARKS = frozenset(".!?")


@dataclass(frozen=True)
class Parsed:
    """A text as the grammar sees it.

    Attributes:
        starts: where each word or mark begins in the text.
        accepted: for each of them, whether the grammar could continue its sentence up to and including it.
        sentiments: the opinions of the complete, well-formed sentences, each in [-1, 1].
        complete: the whole text is a review: at least two sentences, every mark and word accepted.
    """

    starts: tuple[int, ...]
    accepted: tuple[bool, ...]
    sentiments: tuple[float, ...]
    complete: bool


def parse_review(text: str) -> Parsed:
    """Parse a text sentence by sentence; upper and lower case are the same. Any text can be parsed, whether it is a review or not."""
    matches = list(_TOKEN.finditer(text, 0, LONGEST_TEXT))
    tokens = tuple(match[0].lower() for match in matches)
    accepted: list[bool] = []
    sentiments: list[float] = []
    spoken: set[str] = set()
    written = 0  # sentences so far; a mark without words before it is not a sentence
    ended = False  # whether the verdict was given
    sound = True  # whether every sentence was well formed
    for start, end in _sentences(tokens):
        words, marks = _split_mark(tokens[start:end])
        kinds = ("<opening>",) if written == 0 else ("<body>", "<verdict>")
        match = _NOTHING if ended or written == MAX_SENTENCES or not words else _match_sentence(words, kinds)
        taken = _taken_words(match, spoken)
        mark_fits = marks == (".",) or (marks == ("!",) and end == len(tokens))
        well_formed = bool(words) and match.complete and taken == len(words) and mark_fits
        accepted += [True] * (taken + well_formed) + [False] * (end - start - taken - well_formed)
        sentiments += [phrase.sentiment for _, phrase in match.phrases if phrase.sentiment and well_formed]
        spoken |= {phrase.once for _, phrase in match.phrases}
        sound = sound and well_formed
        ended = ended or match.kind == "<verdict>"
        written += bool(words)
    starts = tuple(match.start() for match in matches)
    return Parsed(starts, tuple(accepted), tuple(sentiments), sound and written >= 2)


def is_of_world(prompt: str) -> bool:
    """Whether a prompt can be the beginning of a review: the grammar accepts every word of it."""
    accepted = parse_review(prompt).accepted
    return bool(accepted) and all(accepted)


def _sentences(tokens: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Bounds of the sentences: each reaches to its end mark, the last one to the end of the text."""
    start = 0
    for position, token in enumerate(tokens):
        if token in _END_MARKS:
            yield start, position + 1
            start = position + 1
    if start < len(tokens):
        yield start, len(tokens)


def _split_mark(sentence: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (sentence[:-1], sentence[-1:]) if sentence[-1] in _END_MARKS else (sentence, ())


@dataclass(frozen=True)
class _Match:
    """How much of a sentence the rules accept: its first ``length`` words, and the ``phrases`` in them with their positions.

    ``kind`` is the symbol that the sentence was parsed as (``<opening>``, ``<body>`` or ``<verdict>``); ``complete`` says whether the
    rules accept the whole sentence.
    """

    kind: str
    complete: bool
    length: int
    phrases: tuple[tuple[int, Phrase], ...]


_NOTHING = _Match("", False, 0, ())


def _taken_words(match: _Match, spoken: set[str]) -> int:
    """Words accepted before the first phrase that was already said, in this sentence or an earlier one."""
    known = set(spoken)
    for position, phrase in match.phrases:
        if phrase.once in known:
            return position
        known.add(phrase.once)
    return match.length


@lru_cache(maxsize=4096)
def _match_sentence(words: tuple[str, ...], kinds: tuple[str, ...]) -> _Match:
    best = _NOTHING
    for kind in kinds:
        matcher = _Matcher(words)
        complete = matcher.follow((kind,), 0, ())
        if complete or matcher.reach > best.length:
            best = _Match(kind, complete, matcher.reach, matcher.phrases)
        if complete:
            break
    return best


class _Matcher:
    """Top-down search with backtracking.

    Every rule can be completed. So the furthest word that any branch of the search accepts is the end of the longest beginning that
    the grammar could still continue to a sentence.

    Attributes:
        reach: how many words the furthest branch accepted.
        phrases: the phrases of the branch that got furthest (up to word ``phrases_until``), with their positions.
    """

    def __init__(self, words: tuple[str, ...]):
        self.words = words
        self.reach = 0
        self.phrases: tuple[tuple[int, Phrase], ...] = ()
        self.phrases_until = 0

    def follow(self, rest: tuple[Part, ...], position: int, phrases: tuple[tuple[int, Phrase], ...]) -> bool:
        """Whether ``rest`` can be rewritten to exactly the words from ``position`` on."""
        if position > self.phrases_until:
            self.phrases_until, self.phrases = position, phrases
        if not rest:
            if position == len(self.words):
                self.phrases = phrases
            return position == len(self.words)
        head, tail = rest[0], rest[1:]
        if isinstance(head, str) and head in RULES:
            return any(self.follow(production.parts + tail, position, phrases) for production in RULES[head])
        literal = head.words if isinstance(head, Phrase) else (head,)
        for offset, word in enumerate(literal):
            if position + offset >= len(self.words) or self.words[position + offset] != word.lower():
                return False
            self.reach = max(self.reach, position + offset + 1)
        if isinstance(head, Phrase):
            phrases = (*phrases, (position, head))
        return self.follow(tail, position + len(literal), phrases)
