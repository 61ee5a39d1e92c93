"""How the search ranks: what a query asks for, and which passages say it.

A query is taken apart into *wishes*: an expression of ``search_words.SAME``, with all that says the same in both languages, or a single
word. Words that tell nothing are left out. SQLite's full-text index (FTS5) finds the passages for each wish, by stems (its tokenizer
``porter`` over ``unicode61``), and scores them by bm25, where a title counts most. For each wish a passage gets its share of the best
score, times how rare the wish is, and an entry counts as its best passage. So a long text wins nothing by its length, and a word that is
everywhere decides nothing. Chinese has no spaces: each of its characters is a word of the index, and what no expression explains is asked
for in pairs of characters.
"""

from __future__ import annotations

import difflib
import math
import re
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby

from rlhf_studio.ui.learn.search_words import HAN, HAN_IGNORED, IGNORED, SAME, WEAK, plain

SAME_SHARE, TRANSLATED_SHARE, BEGUN_SHARE = 0.7, 0.9, 0.6
"""What a passage gets that says a wish in other words, in another language, or with a word that begins as the last of a query does."""
EXPRESSION, TELLING, OTHER, EVERYWHERE, TOGETHER = 1.3, 1.0, 0.5, 0.3, 0.35
"""Weights of a wish: an expression that is known; a word that stands in a title; another word; one that is everywhere;
two that stand together."""
BM25_MOST = 2.2  # k1 + 1 with FTS5's k1
RARITY = 1.0
TITLED = 0.5
"""How much more an entry counts whose title asks for the same."""
PASSAGE, SHORTEST_STEM, ALIKE, MOST_BEGUN = 420, 5, 0.8, 12
_TABLE = "CREATE VIRTUAL TABLE passages USING fts5(title, place, body, other, tokenize = 'porter unicode61', prefix = '2 3')"
_SCORES = "SELECT rowid, -bm25(passages, 5.0, 1.0, 1.0, 4.0) FROM passages WHERE passages MATCH ?"
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|s|e)$")
_WORD = re.compile(rf"{HAN.pattern}|(?:(?!{HAN.pattern})[^\W_])+")


@dataclass(frozen=True)
class Wish:
    """Something that a query asks for: a phrase as it was typed, what says the same, whether it may be unfinished, and which part of
    its weight it has."""

    typed: str
    same: tuple[str, ...] = ()
    begun: bool = False
    part: float = 1.0

    @property
    def is_weak(self) -> bool:
        return self.typed.replace(" ", "") in WEAK or self.typed in WEAK

    @property
    def says(self) -> frozenset[str]:
        """Its phrases; a single word without its ending."""
        return frozenset((self.typed, *self.same) if self.same else (_ENDING.sub("", self.typed),))


@dataclass(frozen=True)
class Text:
    """What the index holds of an entry. ``weight``: how much it counts beside others."""

    title: str
    place: str
    body: str
    other: str
    weight: float


@dataclass(frozen=True)
class Found:
    """An entry by its number, the passage that fits best, and the phrases that may stand in it."""

    number: int
    passage: str
    phrases: tuple[str, ...]


class Ranking:
    """The index of many texts. May be used from several threads."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self._texts, self._turn = texts, threading.Lock()
        self._passages = [(number, passage) for number, text in enumerate(texts) for passage in passages_of(text.body)]
        self._titles = [[wish.says for wish in wishes_of(text.title) if not wish.is_weak] for text in texts]
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.execute(_TABLE)
        self._connection.executemany(
            "INSERT INTO passages (rowid, title, place, body, other) VALUES (?, ?, ?, ?, ?)",
            (
                (row, *map(plain, (texts[number].title, texts[number].place, passage, texts[number].other)))
                for row, (number, passage) in enumerate(self._passages)
            ),
        )
        self._connection.execute("CREATE VIRTUAL TABLE words USING fts5vocab(passages, col)")
        self._words = {str(word) for (word,) in self._connection.execute("SELECT DISTINCT term FROM words")}

    def ranked(self, query: str, most: int) -> list[Found]:
        """What fits a person's query, best first."""
        wishes = wishes_of(query)
        with self._turn:
            parts = [self._part(wish) for wish in wishes]
            for before, after in zip(wishes, wishes[1:], strict=False):
                parts.append(self._weighed(self._scores(f'"{before.typed} {after.typed}"'), TOGETHER))
        total: dict[int, float] = defaultdict(float)
        for part in parts:
            for row, score in part.items():
                total[row] += score
        best: dict[int, tuple[float, int]] = {}
        for row, score in total.items():
            number = self._passages[row][0]
            best[number] = max(best.get(number, (0.0, 0)), (score, -row))
        best = {number: (score * self._texts[number].weight * self._titled(number, wishes), row) for number, (score, row) in best.items()}
        order = sorted(best, key=lambda number: (-best[number][0], number))[:most]
        phrases = tuple(phrase for wish in wishes for phrase in (wish.typed, *wish.same))
        return [Found(number, self._passages[-best[number][1]][1], phrases) for number in order]

    def _part(self, wish: Wish) -> dict[int, float]:
        """What each passage gets for a wish."""
        is_han = bool(HAN.search(wish.typed))
        ways = [(f'"{wish.typed}"', 1.0)]
        ways += [(f'"{phrase}"', SAME_SHARE if bool(HAN.search(phrase)) == is_han else TRANSLATED_SHARE) for phrase in wish.same]
        if wish.begun:
            begun = (word for word in self._words if word.startswith(wish.typed) and not IGNORED & {word, f"{word}e"})
            ways += [(f'"{word}"', BEGUN_SHARE) for word in sorted(begun, key=len)[:MOST_BEGUN]]
        best = self._best(ways)
        if not best:
            best = self._best([(near, BEGUN_SHARE) for near in self._near(wish.typed)])
        if wish.same:
            return self._weighed(best, EVERYWHERE if wish.is_weak else EXPRESSION)
        in_a_title = bool(self._scores(f'title : "{wish.typed}"'))
        return self._weighed(best, wish.part * (TELLING if in_a_title else OTHER))

    def _best(self, ways: Sequence[tuple[str, float]]) -> dict[int, float]:
        """For each passage the best of its scores for some phrases, each with what it counts."""
        best: dict[int, float] = {}
        for phrase, share in ways:
            for row, score in self._scores(phrase).items():
                best[row] = max(best.get(row, 0.0), share * score)
        return best

    def _weighed(self, shares: dict[int, float], weight: float) -> dict[int, float]:
        """Shares, times how rare the wish is among the entries."""
        entries = {self._passages[row][0] for row in shares}
        rare = math.log1p(len(self._texts) / max(len(entries), 1)) / math.log1p(len(self._texts))
        return {row: share * rare**RARITY * weight for row, share in shares.items()}

    def _scores(self, phrase: str) -> dict[int, float]:
        """How well each passage says a phrase, from 0 to 1: bm25 without its factor for how rare the phrase is, which FTS5 puts in."""
        found = self._connection.execute(_SCORES, (phrase,)).fetchall()
        rare = max(math.log((len(self._passages) - len(found) + 0.5) / (len(found) + 0.5)), 1e-6)
        return {row: score / (rare * BM25_MOST) for row, score in found}

    def _near(self, word: str) -> list[str]:
        """Phrases for a word that is nowhere: an unfinished ending is cut, as in "whiteni"; else words that are written nearly so."""
        for length in range(len(word) - 1, max(SHORTEST_STEM, len(word) - 4) - 1, -1):
            if any(known.startswith(word[:length]) for known in self._words):
                return [f'"{word[:length]}"*']
        alike = difflib.get_close_matches(word, self._words, 3, ALIKE) if len(word) > SHORTEST_STEM else []
        return [f'"{known}"' for known in alike]

    def _titled(self, number: int, wishes: list[Wish]) -> float:
        """More than one where the title asks for the same: the harmonic mean of the share of the title and the share of the query."""
        title, wishes = self._titles[number], [wish for wish in wishes if not wish.is_weak]
        alike = sum(any(not says.isdisjoint(wish.says) for wish in wishes) for says in title)
        return 1 + TITLED * 2 * alike / (len(title) + len(wishes)) if alike else 1.0


def wishes_of(query: str) -> list[Wish]:
    """What a query asks for, in order. A phrase holds words and spaces alone, so nothing that a person types is an operator."""
    words, at = words_of(query), 0
    wishes, between = list[Wish](), list[str]()
    while at < len(words):
        for count in range(min(_longest(), len(words) - at), 0, -1):
            typed = next((form for form in _forms(" ".join(words[at : at + count])) if form in _meanings()), None)
            if typed is not None:
                wishes += [*_single(between), Wish(typed, _meanings()[typed])]
                between, at = [], at + count
                break
        else:
            between.append(words[at])
            at += 1
    wishes += _single(between)
    telling = [wish for wish in wishes if wish.same or not (wish.typed in IGNORED or wish.typed.isdigit())]
    telling = telling or wishes or [Wish(word) for word in words]
    if telling and not telling[-1].same and telling[-1].typed == words[-1] and not HAN.match(words[-1]):
        telling[-1] = replace(telling[-1], begun=True)
    return telling


def words_of(text: str) -> list[str]:
    """The words of a text in the form that is searched; a Chinese character is a word."""
    return _WORD.findall(plain(text))


def _single(words: Sequence[str]) -> Iterator[Wish]:
    """Words that no expression explains; of Chinese each pair of characters that stand together, without what tells nothing."""
    for is_han, group in groupby(words, lambda word: bool(HAN.match(word))):
        if is_han:
            for piece in HAN_IGNORED.sub(" ", "".join(group)).split():
                pairs = max(len(piece) - 1, 1)  # a word has two characters, so a piece has half as many words
                yield from (Wish(" ".join(piece[at : at + 2]), part=max(len(piece) / 2, 1) / pairs) for at in range(pairs))
        else:
            yield from map(Wish, group)


def _forms(phrase: str) -> Iterator[str]:
    """A phrase as it is, and without an English ending."""
    yield phrase
    yield from (phrase.removesuffix(ending) for ending in ("s", "es", "d", "ed", "ing") if phrase.endswith(ending))
    yield re.sub("ing$", "e", re.sub("ies$", "y", phrase))


@cache
def _meanings() -> dict[str, tuple[str, ...]]:
    """For each expression, what says the same."""
    meanings: dict[str, dict[str, None]] = defaultdict(dict)
    for line in SAME.strip().splitlines():
        phrases = [" ".join(words_of(phrase)) for phrase in line.split(",")]
        for phrase in phrases:
            meanings[phrase] |= dict.fromkeys(other for other in phrases if other != phrase)
    return {phrase: tuple(same) for phrase, same in meanings.items()}


@cache
def _longest() -> int:
    return max(phrase.count(" ") + 1 for phrase in _meanings())


def passages_of(text: str) -> list[str]:
    """A text in passages of some sentences each; an empty text is one empty passage."""
    passages = [""]
    for sentence in _SENTENCE.split(" ".join(text.split())):
        if passages[-1] and len(passages[-1]) + len(sentence) > PASSAGE:
            passages.append("")
        passages[-1] = f"{passages[-1]} {sentence}".strip()
    return passages
