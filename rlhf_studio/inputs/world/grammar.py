"""The grammar of the review world: one plain context-free grammar (:data:`RULES`) of movie reviews.

A review is one opening sentence, up to three more sentences, and at most one verdict at the end::

    In this Danish thriller the plot is gripping, but the score feels stale. Even the ending moved me to tears. I loved every minute.

:mod:`rlhf_studio.inputs.world.writer` draws reviews from these rules and
:mod:`rlhf_studio.inputs.world.parser` recognises them, so that the two
always agree. Three more rules are not context-free, and both files keep them:

* no noun is discussed twice, and no opinion is said twice;
* nothing follows the verdict, and a review has at most :data:`MAX_SENTENCES` sentences;
* only the very last mark of a review may be an exclamation mark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlhf_studio.inputs.world import vocabulary

STRENGTH = {"strong": 1.0, "mild": 0.6}
"""How much an opinion counts; its sign comes from the table of the vocabulary that it is in."""
SIGNS = {"+": 1, "-": -1}
MAX_SENTENCES = 4


@dataclass(frozen=True)
class Phrase:
    """Words that may occur only once in a review: the noun of an aspect (sentiment 0) or an opinion (sentiment in [-1, 1]).

    ``once`` is the key by which a second use is noticed.
    """

    words: tuple[str, ...]
    once: str
    sentiment: float = 0.0


Part = str | Phrase
"""A word, a symbol in angle brackets, or a phrase."""


@dataclass(frozen=True)
class Production:
    """One way to rewrite a symbol.

    ``sign`` is the sign of its sentiment (0: none, or both signs); ``weight`` says how often the writer takes it, beside the others.
    """

    parts: tuple[Part, ...]
    sign: int = 0
    weight: float = 1.0


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
