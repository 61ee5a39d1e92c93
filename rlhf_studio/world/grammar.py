"""The grammar of the review world: it writes movie reviews, and it reads them back.

A review is one opening sentence, up to three more sentences, and at most one verdict at the end::

    In this Danish thriller the plot is gripping, but the score feels stale. Even the ending moved me to tears. I loved every minute.

The rules are one plain context-free grammar (:data:`RULES`). :func:`write_review` samples from it and :func:`read_review`
recognises it, so that writer and reader cannot drift apart. Three rules are not context-free and bind both:

* no noun is discussed twice, and no opinion is said twice;
* nothing follows the verdict, and a review has at most :data:`MAX_SENTENCES` sentences;
* only the very last mark of a review may be an exclamation mark.

Sentiment is a latent variable: a review is positive or negative, and each clause in it agrees with probability
:data:`AGREEMENT`. Randomness comes from ``Random.random()`` alone, the one method whose values Python promises to keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from rlhf_studio.world import vocabulary

STRENGTH = {"strong": 1.0, "mild": 0.6}
"""How much an opinion weighs; its sign comes from the table it stands in."""
SIGNS = {"+": 1, "-": -1}
AGREEMENT = 0.9
MAX_SENTENCES = 4
SHORTEST_PROMPT, LONGEST_PROMPT = 3, 8
LONGEST_TEXT = 20_000
"""Characters that :func:`read_review` looks at. A review has about 170."""

_TOKEN = re.compile(r"[\w']+|[^\w\s]")
_END_MARKS = frozenset(".!?")


@dataclass(frozen=True)
class Phrase:
    """Words that may occur once in a review: the noun of an aspect (sentiment 0) or an opinion (sentiment in [-1, 1])."""

    words: tuple[str, ...]
    once: str
    sentiment: float = 0.0


Part = str | Phrase
"""A word, a symbol in angle brackets, or a phrase."""


@dataclass(frozen=True)
class Production:
    """One way to rewrite a symbol. ``sign`` is that of its sentiment (0: none, or both); ``weight`` is for the writer."""

    parts: tuple[Part, ...]
    sign: int = 0
    weight: float = 1.0


@dataclass(frozen=True)
class Opening:
    """The neutral beginning of a review, cut off before its first opinion.

    Attributes:
        parts: its words and nouns.
        rest: what the grammar still has to rewrite to end the first sentence.
    """

    parts: tuple[Part, ...]
    rest: tuple[Part, ...]

    @property
    def prompt(self) -> str:
        return _spell([self.parts])


@dataclass(frozen=True)
class Review:
    """A written review: ``prompt + response`` is its text, ``sentiment`` the latent sign, +1 or -1."""

    prompt: str
    response: str
    sentiment: int


@dataclass(frozen=True)
class Reading:
    """What the reader makes of a text.

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


# --- the rules ---------------------------------------------------------------------------------------------------------------


def _parts(text: str) -> tuple[Part, ...]:
    return tuple(re.findall(r"<[^>]+>|[\w']+|[^\w\s]", text))


def _rule(text: str, sign: int = 0, weight: float = 1.0) -> Production:
    return Production(_parts(text), sign, weight)


def _opinion_rules(phrases: tuple[str, ...], sign: int, strength: str, weight: float = 1.0) -> list[Production]:
    value = sign * STRENGTH[strength]
    return [Production((Phrase(tuple(text.split()), text, value),), weight=weight) for text in phrases]


def _predicate_rules(aspect: str, mark: str, sign: int) -> dict[str, list[Production]]:
    """What can be said of one aspect with one sign: adjectives by strength, nouns, verb phrases."""
    key = f"{aspect} {mark}"
    rules: dict[str, list[Production]] = {f"<noun {key}>": [], f"<does {key}>": []}
    for strength in STRENGTH:
        fitting = _opinion_rules(vocabulary.ADJECTIVE[aspect, mark, strength], sign, strength, weight=4.0)
        general = _opinion_rules(vocabulary.ANY_ADJECTIVE[mark, strength], sign, strength)
        rules[f"<{strength} {key}>"] = fitting + general
        rules[f"<noun {key}>"] += _opinion_rules(vocabulary.ANY_NOUN[mark, strength], sign, strength)
        rules[f"<does {key}>"] += _opinion_rules(vocabulary.VERB_PHRASE[aspect, mark, strength], sign, strength)
    rules[f"<adjective {key}>"] = [_rule(f"<strong {key}>"), _rule(f"<mild {key}>")]
    rules[f"<says {key}>"] = [
        _rule(f"<is> <adjective {key}>", weight=2.0),
        _rule(f"<is> <truly> <strong {key}>", weight=0.6),
        _rule(f"<is> <rather> <mild {key}>", weight=0.6),
        _rule(f"<is> <mild {key}> and <strong {key}>", weight=0.7),
        _rule(f"is <noun {key}>", weight=0.4),
        _rule(f"<does {key}>", weight=2.0),
    ]
    return rules


def _sentence_rules() -> dict[str, list[Production]]:
    """Clauses (the plot is gripping), one or two claims, and the three kinds of sentence."""
    rules: dict[str, list[Production]] = {"<verdict>": []}
    for mark, sign in SIGNS.items():
        rules[f"<clause {mark}>"] = [_rule(f"the <{aspect}> <says {aspect} {mark}>") for aspect in vocabulary.NOUNS]
        for strength in STRENGTH:
            verdicts = _opinion_rules(vocabulary.VERDICT[mark, strength], sign, strength)
            rules["<verdict>"] += [Production(verdict.parts, sign) for verdict in verdicts]
    # The sign of a claim is chosen after its noun, so that a prompt may end there and still be neutral.
    for aspect in vocabulary.NOUNS:
        rules[f"<claims {aspect}>"] = [
            _rule(f"<says {aspect} +>", 1),
            _rule(f"<says {aspect} ->", -1),
            _rule(f"<says {aspect} +> , and <clause +>", 1, 0.6),
            _rule(f"<says {aspect} -> , and <clause ->", -1, 0.6),
            _rule(f"<says {aspect} +> , but <clause ->", 0, 0.12),
            _rule(f"<says {aspect} -> , but <clause +>", 0, 0.12),
        ]
    rules["<claims>"] = [_rule(f"the <{aspect}> <claims {aspect}>") for aspect in vocabulary.NOUNS]
    about_a_film = [_rule(f"the <{aspect}> of this <film> <claims {aspect}>", weight=0.08) for aspect in vocabulary.NOUNS]
    rules["<opening>"] = [_rule("<frame> <claims>"), *about_a_film]
    rules["<body>"] = [
        _rule("<claims>", weight=1.2),
        _rule("even <clause +>", 1, 0.3),
        _rule("even <clause ->", -1, 0.3),
        _rule("better still , <clause +>", 1, 0.3),
        _rule("worse still , <clause ->", -1, 0.3),
        _rule("happily , <clause +>", 1, 0.2),
        _rule("sadly , <clause ->", -1, 0.2),
        _rule("at least <clause +>", 1, 0.2),
        _rule("above all , <clause +>", 1, 0.1),
        _rule("above all , <clause ->", -1, 0.2),
    ]
    return rules


def _word_rules() -> dict[str, list[Production]]:
    """Words without sentiment: frames, films, and the nouns of the aspects."""
    rules = {
        "<frame>": [
            _rule("in this <film>", weight=3.0),
            _rule("I saw this <film> <time> and", weight=3.0),
            _rule("we watched this <film> <time> and", weight=2.0),
            *[_rule(frame, weight=0.7) for frame in vocabulary.FRAMES],
        ],
        "<film>": [_rule("<genre>", weight=0.4), _rule("<origin> <genre>", weight=0.6)],
        "<is>": [_rule("is", weight=3.0), _rule("feels"), _rule("seems", weight=0.6)],
        "<truly>": [_rule("truly"), _rule("simply")],
        "<rather>": [_rule("rather"), _rule("quite")],
    }
    for symbol, texts in (("<genre>", vocabulary.GENRES), ("<origin>", vocabulary.ORIGINS), ("<time>", vocabulary.TIMES)):
        rules[symbol] = [_rule(text) for text in texts]
    for aspect, nouns in vocabulary.NOUNS.items():
        rules[f"<{aspect}>"] = [Production((Phrase(tuple(noun.split()), noun),)) for noun in nouns]
    return rules


def _all_rules() -> dict[str, tuple[Production, ...]]:
    rules = {**_word_rules(), **_sentence_rules()}
    for aspect in vocabulary.NOUNS:
        for mark, sign in SIGNS.items():
            rules |= _predicate_rules(aspect, mark, sign)
    return {symbol: tuple(productions) for symbol, productions in rules.items()}


RULES: dict[str, tuple[Production, ...]] = _all_rules()


# --- writing -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Style:
    """How reviews are drawn.

    Attributes:
        exclaim: probability that the last mark is an exclamation mark.
        shortest: words and marks of the whole review, at least.
        longest_response: words and marks after the prompt, at most.
    """

    exclaim: float = 0.15
    shortest: int = 24
    longest_response: int = 30


def write_opening(rng: Random) -> Opening:
    """Draw the beginning of a review, 3 to 8 words and marks: a frame, alone or with the first noun."""
    while True:
        done: list[Part] = []
        rest: list[Part] = ["<opening>"]
        stops = ("<claims>", "<claims ") if rng.random() < 0.5 else ("<claims ",)
        while not _starts_with(rest[0], stops):
            _rewrite_first(done, rest, rng, 0)
        if SHORTEST_PROMPT <= len(_words(done)) <= LONGEST_PROMPT:
            return Opening(tuple(done), tuple(rest))


def write_response(opening: Opening, rng: Random, style: Style, sentiment: int) -> str:
    """Finish a review whose latent sentiment is +1 or -1; the text starts with the space after the prompt.

    Draws again until the length fits and nothing is said twice.
    """
    while True:
        sentences = [_derive([*opening.parts], [*opening.rest], rng, sentiment)]
        bodies = 1 if rng.random() < 0.65 else 2
        sentences += [_derive([], ["<body>"], rng, sentiment) for _ in range(bodies)]
        if rng.random() < 0.8:
            sentences.append(_derive([], ["<verdict>"], rng, sentiment))
        marked = _punctuate(sentences, rng, style)
        once = [part.once for sentence in sentences for part in sentence if isinstance(part, Phrase)]
        size = sum(len(_words(sentence)) for sentence in marked)
        fits = style.shortest <= size <= style.longest_response + len(_words(opening.parts))
        if fits and len(set(once)) == len(once):
            return _spell(marked)[len(opening.prompt) :]


def _starts_with(part: Part, symbols: tuple[str, ...]) -> bool:
    return isinstance(part, str) and part.startswith(symbols)


def _derive(done: list[Part], rest: list[Part], rng: Random, sentiment: int) -> list[Part]:
    while rest:
        _rewrite_first(done, rest, rng, sentiment)
    return done


def _rewrite_first(done: list[Part], rest: list[Part], rng: Random, sentiment: int) -> None:
    """One step of a leftmost derivation: move a word over to ``done``, or replace a symbol by one of its productions."""
    part = rest.pop(0)
    if isinstance(part, Phrase) or part not in RULES:
        done.append(part)
        return
    weights = [_weight(production, sentiment) for production in RULES[part]]
    point = rng.random() * sum(weights)
    for production, weight in zip(RULES[part], weights, strict=True):
        point -= weight
        if point < 0:
            break
    rest[:0] = production.parts


def _weight(production: Production, sentiment: int) -> float:
    if not production.sign:
        return production.weight
    return production.weight * (AGREEMENT if production.sign == sentiment else 1 - AGREEMENT)


def _punctuate(sentences: list[list[Part]], rng: Random, style: Style) -> list[list[Part]]:
    last = "!" if rng.random() < style.exclaim else "."
    return [[*sentence, "."] for sentence in sentences[:-1]] + [[*sentences[-1], last]]


def _words(parts: tuple[Part, ...] | list[Part]) -> list[str]:
    return [word for part in parts for word in (part.words if isinstance(part, Phrase) else (part,))]


def _spell(sentences: list) -> str:
    """Text of a list of sentences: spaces between words, none before marks, a capital at each start."""
    texts = []
    for sentence in sentences:
        text = re.sub(r" ([^\w\s])", r"\1", " ".join(_words(sentence)))
        texts.append(text[0].upper() + text[1:])
    return " ".join(texts)


# --- reading -------------------------------------------------------------------------------------------------------------------


def read_review(text: str) -> Reading:
    """Recognise a text sentence by sentence; upper and lower case are the same. Any text at all gives a reading."""
    found = list(_TOKEN.finditer(text, 0, LONGEST_TEXT))
    tokens = tuple(match[0].lower() for match in found)
    accepted: list[bool] = []
    sentiments: list[float] = []
    said: set[str] = set()
    written, ended, sound = 0, False, True
    for start, end in _sentences(tokens):
        words, marks = _split_mark(tokens[start:end])
        kinds = ("<opening>",) if written == 0 else ("<body>", "<verdict>")
        match = _NOTHING if ended or written == MAX_SENTENCES or not words else _match_sentence(words, kinds)
        taken = _taken_words(match, said)
        mark_fits = marks == (".",) or (marks == ("!",) and end == len(tokens))
        well_formed = bool(words) and match.complete and taken == len(words) and mark_fits
        accepted += [True] * (taken + well_formed) + [False] * (end - start - taken - well_formed)
        sentiments += [phrase.sentiment for _, phrase in match.phrases if phrase.sentiment and well_formed]
        said |= {phrase.once for _, phrase in match.phrases}
        sound, ended, written = sound and well_formed, ended or match.kind == "<verdict>", written + bool(words)
    starts = tuple(match.start() for match in found)
    return Reading(starts, tuple(accepted), tuple(sentiments), sound and written >= 2)


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
    """How far the rules follow a sentence: ``phrases`` with their positions among the first ``length`` words."""

    kind: str
    complete: bool
    length: int
    phrases: tuple[tuple[int, Phrase], ...]


_NOTHING = _Match("", False, 0, ())


def _taken_words(match: _Match, said: set[str]) -> int:
    """Words accepted before the first phrase that was already said, in this sentence or an earlier one."""
    heard = set(said)
    for position, phrase in match.phrases:
        if phrase.once in heard:
            return position
        heard.add(phrase.once)
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
    """Top-down search with backtracking. Every rule can be completed, so the furthest word that any branch reads ends the
    longest beginning that the grammar could continue."""

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
