"""Sentiment by word lists, with simple negation."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from rlhf_studio.config import LexiconReward
from rlhf_studio.engine.rewards.kinds.rules import Rule, rule_of

FOLDER = Path(__file__).parent / "words"
NEGATIONS = frozenset({"not", "no", "never", "nobody", "nothing", "neither", "nor", "without", "hardly", "barely", "cannot"})
_WORD = re.compile(r"[^\W_]+(?:['\u2019\-][^\W_]+)*")
_SENTENCE_END = re.compile(r"[.!?;:\n]")


@cache
def bundled_words(name: str) -> frozenset[str]:
    """The words of ``positive`` or ``negative``: one a line, lines that begin with # are comments."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


@rule_of(LexiconReward)
def lexicon_rule(settings: LexiconReward) -> Rule:
    """(positive words - negative words) / ``full_at``, limited to [-1, 1].

    A word within ``negation_span`` words after a negation, in the same sentence, counts for the other side.
    """
    positive, negative = (_words(settings, side) for side in ("positive", "negative"))

    def score(text: str, tokens: int) -> float:
        balance = sum(_balance(sentence, positive, negative, settings.negation_span) for sentence in _SENTENCE_END.split(text))
        return max(-1.0, min(1.0, balance / settings.full_at))

    return score


def _words(settings: LexiconReward, side: str) -> frozenset[str]:
    own = frozenset(_plain(word) for word in getattr(settings, side).split(",") if word.strip())
    return own | bundled_words(side) if settings.use_bundled else own


def _balance(sentence: str, positive: frozenset[str], negative: frozenset[str], span: int) -> int:
    balance, negated = 0, 0  # ``negated``: how many more words the last negation reaches
    for match in _WORD.finditer(sentence):
        word = _plain(match[0])
        if word in NEGATIONS or word.endswith("n't"):
            negated = span
            continue
        value = (word in positive) - (word in negative)
        balance += -value if negated else value
        negated = max(0, negated - 1)
    return balance


def _plain(word: str) -> str:
    return word.strip().casefold().replace("\u2019", "'")
