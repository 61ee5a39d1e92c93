"""Rewards computed from the text alone: each rule takes one response and gives one number."""

from __future__ import annotations

import re
from collections.abc import Callable

import regex
import torch

from rlhf_studio.config import KeywordReward, LengthReward, RegexReward, RepetitionReward
from rlhf_studio.engine.rewards.episodes import Answer, Episodes, Source
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.registry import BuildContext, Settings, refuse_problems, scorer

Rule = Callable[[str, int], float]
"""(response text, response length in tokens) to score. Raises :class:`ComponentError` when it has none."""


def per_text(rule: Rule) -> Source:
    """Applies the rule to each response; an error names the row."""

    def score(episodes: Episodes) -> Answer:
        values = []
        for row, (text, tokens) in enumerate(zip(episodes.responses, episodes.lengths, strict=True)):
            try:
                values.append(rule(text, tokens))
            except ComponentError as error:
                raise ComponentError(str(error), row) from error
        return Answer(torch.tensor(values, dtype=torch.float32))

    return score


def rule_of(kind: type[Settings]) -> Callable[[Callable[[Settings], Rule]], Callable[[Settings], Rule]]:
    """Decorates what makes a rule from the settings of one kind, and registers it as that kind's scorer."""

    def register(make: Callable[[Settings], Rule]) -> Callable[[Settings], Rule]:
        @scorer(kind)
        def build(settings: Settings, context: BuildContext) -> Source:
            return per_text(make(settings))

        return make

    return register


@rule_of(LengthReward)
def length_rule(settings: LengthReward) -> Rule:
    """1 at the target, falling linearly to 0 at ``tolerance`` tokens away."""
    return lambda text, tokens: max(0.0, 1.0 - abs(tokens - settings.target) / settings.tolerance)


@rule_of(KeywordReward)
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


@scorer(RegexReward)
def build_regex(settings: RegexReward, context: BuildContext) -> Source:
    """The rule for a pattern, which may be none. Raises :class:`ConfigError`."""
    refuse_problems(settings, context.field, context.permissions)
    return per_text(regex_rule(settings))


@rule_of(RepetitionReward)
def repetition_rule(settings: RepetitionReward) -> Rule:
    """Fraction of word n-grams that repeat an earlier one: 0 when all differ, near 1 when all are the same."""

    def score(text: str, tokens: int) -> float:
        words = text.split()
        grams = [tuple(words[start : start + settings.n]) for start in range(len(words) - settings.n + 1)]
        return 1.0 - len(set(grams)) / len(grams) if grams else 0.0

    return score
