"""The writer of reviews: a random leftmost derivation from the grammar, cut in two where the prompt ends.

Sentiment is a latent variable: a review is positive or negative, and each clause in it agrees with probability
:data:`AGREEMENT`. Random numbers come from ``Random.random()`` alone, the one method for which Python promises that the same seed
always gives the same values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from rlhf_studio.inputs.world.grammar import RULES, Part, Phrase, Production

AGREEMENT = 0.9
SHORTEST_PROMPT, LONGEST_PROMPT = 3, 8
SHORTEST_REVIEW = 24
LONGEST_RESPONSE = 30
"""These lengths count words and marks; nearly all are one token each."""
ONE_BODY_SENTENCE, VERDICT, EXCLAIM = 0.65, 0.8, 0.15
"""Probabilities: of one sentence instead of two after the opening, of a verdict, and of an exclamation mark at the end."""


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


def write_response(opening: Opening, rng: Random, sentiment: int) -> str:
    """Finish a review whose latent sentiment is +1 or -1; the text starts with the space after the prompt.

    Draws again until the length fits and nothing is said twice.
    """
    while True:
        sentences = [_derive([*opening.parts], [*opening.rest], rng, sentiment)]
        bodies = 1 if rng.random() < ONE_BODY_SENTENCE else 2
        sentences += [_derive([], ["<body>"], rng, sentiment) for _ in range(bodies)]
        if rng.random() < VERDICT:
            sentences.append(_derive([], ["<verdict>"], rng, sentiment))
        marked = _punctuate(sentences, rng)
        once = [part.once for sentence in sentences for part in sentence if isinstance(part, Phrase)]
        size = sum(len(_words(sentence)) for sentence in marked)
        fits = SHORTEST_REVIEW <= size <= LONGEST_RESPONSE + len(_words(opening.parts))
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
    rest[:0] = _choose(RULES[part], rng, sentiment).parts


def _choose(productions: tuple[Production, ...], rng: Random, sentiment: int) -> Production:
    weights = [_weight(production, sentiment) for production in productions]
    point = rng.random() * math.fsum(weights)
    for production, weight in zip(productions, weights, strict=True):
        if point < weight:
            return production
        point -= weight
    return productions[-1]  # only rounding leads here


def _weight(production: Production, sentiment: int) -> float:
    if not production.sign:
        return production.weight
    return production.weight * (AGREEMENT if production.sign == sentiment else 1 - AGREEMENT)


def _punctuate(sentences: list[list[Part]], rng: Random) -> list[list[Part]]:
    last = "!" if rng.random() < EXCLAIM else "."
    return [[*sentence, "."] for sentence in sentences[:-1]] + [[*sentences[-1], last]]


def _words(parts: tuple[Part, ...] | list[Part]) -> list[str]:
    return [word for part in parts for word in (part.words if isinstance(part, Phrase) else (part,))]


def _spell(sentences: Sequence[tuple[Part, ...] | list[Part]]) -> str:
    """Text of a list of sentences: spaces between words, none before marks, a capital at each start."""
    texts = []
    for sentence in sentences:
        text = re.sub(r" ([^\w\s])", r"\1", " ".join(_words(sentence)))
        texts.append(text[0].upper() + text[1:])
    return " ".join(texts)
