"""Rewards computed from the text alone. Each takes one response and returns one number."""

from __future__ import annotations

import re
from collections.abc import Callable

import regex

from rlhf_studio.config import KeywordReward, LengthReward, RegexReward, RepetitionReward
from rlhf_studio.engine.rewards.errors import ComponentError

Rule = Callable[[str, int], float]
"""(response text, response length in tokens) to score."""


def length_rule(settings: LengthReward) -> Rule:
    """1 at the target, falling linearly to 0 at ``tolerance`` tokens away."""
    return lambda text, tokens: max(0.0, 1.0 - abs(tokens - settings.target) / settings.tolerance)


def keyword_rule(settings: KeywordReward) -> Rule:
    """Number of hits of whole words, in any case, at most ``cap``."""
    words = [word.strip() for word in settings.words.split(",") if word.strip()]
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(re.escape(word) for word in words) + r")(?!\w)", re.IGNORECASE)
    return lambda text, tokens: float(min(len(pattern.findall(text)), settings.cap)) if words else 0.0


def regex_rule(settings: RegexReward) -> Rule:
    """1 when the pattern is found (or describes the whole text), else 0. Raises :class:`ComponentError` when it outruns its time limit."""
    pattern = regex.compile(settings.pattern)
    look = pattern.fullmatch if settings.match == "full" else pattern.search

    def score(text: str, tokens: int) -> float:
        try:
            return float(look(text, timeout=settings.timeout) is not None)
        except TimeoutError:
            raise ComponentError(
                f"the pattern {settings.pattern!r} took longer than {settings.timeout} s on a response; use a simpler pattern"
            ) from None

    return score


def repetition_rule(settings: RepetitionReward) -> Rule:
    """Share of word n-grams that repeat an earlier one: 0 when all differ, near 1 when all are the same."""

    def score(text: str, tokens: int) -> float:
        words = text.split()
        grams = [tuple(words[start : start + settings.n]) for start in range(len(words) - settings.n + 1)]
        return 1.0 - len(set(grams)) / len(grams) if grams else 0.0

    return score
