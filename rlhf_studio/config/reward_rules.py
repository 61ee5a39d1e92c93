"""Reward components that are computed from the text alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from rlhf_studio.config.base import setting
from rlhf_studio.config.permissions import Permissions
from rlhf_studio.config.reward_base import Component, ComponentProblem, weight_setting
from rlhf_studio.config.reward_patterns import pattern_problems
from rlhf_studio.language import S_


class LengthReward(Component):
    """1 at the target length, falling linearly to 0 at a distance of ``tolerance`` and staying there."""

    title = "Length"
    group = "Rules"
    counts_tokens = True

    kind: Literal["length"] = "length"
    target: int = setting(20, "Target length", "Response length that earns the full score.", unit="tokens", level="basic", ge=0, le=32768)
    tolerance: int = setting(
        10, "Tolerance", "Distance from the target at which the score reaches 0.", unit="tokens", level="basic", ge=1, le=32768
    )


class KeywordReward(Component):
    """Number of the given words found in the response (whole words, any case), up to a cap."""

    title = "Keywords"
    group = "Rules"

    kind: Literal["keywords"] = "keywords"
    words: str = setting("good", "Words", "Words to look for, separated by commas.", level="basic", min_length=1, max_length=10_000)
    cap: int = setting(3, "Cap", "More hits than this earn nothing more.", unit="hits", ge=1, le=1000)

    def problems(self, permissions: Permissions) -> Iterator[ComponentProblem]:
        """No word at all."""
        if not any(word.strip() for word in self.words.split(",")):
            yield ComponentProblem("words", S_("there are no words between the commas; write for example: good, lovely"))


class LexiconReward(Component):
    """Sentiment by word lists: positive words less negative words, from -1 to 1. A word after a negation counts for the other side."""

    title = "Sentiment words"
    group = "Rules"

    kind: Literal["lexicon"] = "lexicon"
    use_bundled: bool = setting(True, "Bundled words", "Use the bundled lists of English positive and negative words.", level="basic")
    positive: str = setting(
        "", "More positive words", "These count as positive too; separate with commas.", level="basic", max_length=10_000
    )
    negative: str = setting(
        "", "More negative words", "These count as negative too; separate with commas.", level="basic", max_length=10_000
    )
    full_at: int = setting(
        3, "Full score at", "This many positive words more than negative ones earn 1; the other way round -1; between, in proportion.",
        unit="words", ge=1, le=1000,
    )  # fmt: skip
    negation_span: int = setting(
        3, "Reach of a negation", "A word within this distance after not, never, no or n't counts for the other side; 0 heeds no negation.",
        unit="words", ge=0, le=20,
    )  # fmt: skip

    def described(self) -> str:
        """What is counted."""
        return "sentiment words"

    def problems(self, permissions: Permissions) -> Iterator[ComponentProblem]:
        """Words that are several words, words on both sides, or none at all."""
        both = {}
        for setting_name in ("positive", "negative"):
            both[setting_name] = [word.strip() for word in getattr(self, setting_name).split(",") if word.strip()]
            for word in both[setting_name]:
                if len(word.split()) > 1:
                    yield ComponentProblem(setting_name, S_(f"{word[:60]!r} is more than one word; separate words with commas"))
        if on_both_sides := sorted(set(both["positive"]) & set(both["negative"])):
            yield ComponentProblem("negative", S_(f"{on_both_sides[0]!r} is among the positive words too; keep one"))
        if not self.use_bundled and not any(both.values()):
            yield ComponentProblem(
                "positive", S_("without the bundled words, words of your own are needed; write for example: good, lovely")
            )


class RegexReward(Component):
    """1 when the pattern is found in the response, else 0."""

    title = "Pattern"
    group = "Rules"

    kind: Literal["regex"] = "regex"
    pattern: str = setting(
        r"\.$", "Pattern", "Regular expression that is searched in the response.", level="basic", min_length=1, max_length=2000
    )
    match: Literal["search", "full"] = setting(
        "search", "Match", "search: the pattern occurs somewhere in the response. full: it describes the whole response, as for a format.",
        level="basic",
    )  # fmt: skip
    timeout: float = setting(
        0.5, "Time limit", "A search that takes longer stops the run with a message, so that a costly pattern cannot hang it.",
        unit="seconds", gt=0, le=30,
    )  # fmt: skip

    def problems(self, permissions: Permissions) -> Iterator[ComponentProblem]:
        """A pattern that is no regular expression."""
        yield from pattern_problems(self.pattern)


class RepetitionReward(Component):
    """Share of repeated n-grams in the response, 0 (none) to 1; its weight is negative from the start, which makes it a penalty."""

    title = "Repetition"
    group = "Rules"

    kind: Literal["repetition"] = "repetition"
    weight: float = weight_setting(-1.0)
    n: int = setting(3, "n-gram size", "Length of the word groups that are compared.", unit="words", level="basic", ge=1, le=20)
