"""Texts that say the same in another way, made by a few rules: a reward model's scores should hardly change with them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from typing import Any

from rlhf_studio.inputs.world import vocabulary
from rlhf_studio.language import N_

COMMON = (("film", "movie"), ("begins", "starts"), ("large", "big"), ("quick", "fast"), ("do not", "don't"), ("is not", "isn't"))
"""Pairs of common words that mean the same; the world's own synonyms come before them."""

Rewrite = Callable[[str, random.Random], str]


def _synonym_groups() -> list[tuple[str, ...]]:
    """Phrases of the world that have the same sentiment of the same thing, so that gold stays the same; then common words."""
    tables: Iterable[dict[Any, tuple[str, ...]]] = (vocabulary.ADJECTIVE, vocabulary.ANY_ADJECTIVE, vocabulary.ANY_NOUN)
    groups = [tuple(phrases) for table in tables for phrases in table.values() if len(phrases) > 1]
    return [*groups, *COMMON]


_ALTERNATIVES = {phrase: tuple(other for other in group if other != phrase) for group in _synonym_groups() for phrase in group}
_PHRASE = re.compile(r"\b(" + "|".join(map(re.escape, sorted(_ALTERNATIVES, key=len, reverse=True))) + r")\b")


def synonyms(text: str, draw: random.Random) -> str:
    """The first phrase that has a synonym which the text does not have yet is replaced by one of them."""
    for match in _PHRASE.finditer(text):
        if unused := [other for other in _ALTERNATIVES[match[0]] if other not in text]:
            return text[: match.start()] + draw.choice(unused) + text[match.end() :]
    return text


def punctuation(text: str, draw: random.Random) -> str:
    """Exclamation marks become full stops; else the first comma goes; else an end mark is added, or taken away."""
    if "!" in text:
        return text.replace("!", ".")
    if "," in text:
        return text.replace(",", "", 1)
    return text[:-1] if text.endswith(".") else f"{text}." if text.strip() else text


def capitals(text: str, draw: random.Random) -> str:
    """Small letters throughout; a text that has only small ones gets a capital at its beginning."""
    small = text.lower()
    if small != text:
        return small
    index = next((index for index, letter in enumerate(text) if letter.isalpha()), None)
    return text if index is None else text[:index] + text[index].upper() + text[index + 1 :]


RULES: dict[str, Rewrite] = {N_("synonyms"): synonyms, N_("punctuation"): punctuation, N_("capitals"): capitals}
"""Each gives the text as it is where it has nothing to change."""
