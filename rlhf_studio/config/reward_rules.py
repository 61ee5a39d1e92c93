"""Reward components that are computed from the text alone."""

from __future__ import annotations

from typing import Literal

from rlhf_studio.config.base import setting
from rlhf_studio.config.reward_base import Component, weight_setting


class LengthReward(Component):
    """1 at the target length, falling linearly to 0 at a distance of ``tolerance`` and staying there."""

    kind: Literal["length"] = "length"
    target: int = setting(20, "Target length", "Response length that earns the full score.", unit="tokens", level="basic", ge=0, le=32768)
    tolerance: int = setting(
        10, "Tolerance", "Distance from the target at which the score reaches 0.", unit="tokens", level="basic", ge=1, le=32768
    )


class KeywordReward(Component):
    """Number of the given words found in the response (whole words, any case), up to a cap."""

    kind: Literal["keywords"] = "keywords"
    words: str = setting("good", "Words", "Words to look for, separated by commas.", level="basic", min_length=1, max_length=10_000)
    cap: int = setting(3, "Cap", "More hits than this earn nothing more.", unit="hits", ge=1, le=1000)


class LexiconReward(Component):
    """Sentiment by word lists: positive words less negative words, from -1 to 1. A word after a negation counts for the other side."""

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


class RegexReward(Component):
    """1 when the pattern is found in the response, else 0."""

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


class RepetitionReward(Component):
    """Share of repeated n-grams in the response, 0 (none) to 1; its weight is negative from the start, which makes it a penalty."""

    kind: Literal["repetition"] = "repetition"
    weight: float = weight_setting(-1.0)
    n: int = setting(3, "n-gram size", "Length of the word groups that are compared.", unit="words", level="basic", ge=1, le=20)


class BleuReward(Component):
    """Sentence BLEU of the response against the reference text of its row, 0 to 1. Needs a reference column in the data."""

    kind: Literal["bleu"] = "bleu"
    max_order: int = setting(4, "Longest n-gram", "Groups of up to this many words are compared.", unit="words", level="basic", ge=1, le=8)
    smoothing: Literal["exp", "floor", "add-k", "none"] = setting(
        "exp", "Smoothing", "What happens when no group of some length agrees; with none the score is then 0."
    )
    tokenizer: Literal["13a", "intl", "char", "none"] = setting(
        "13a", "Word splitting", "sacreBLEU's tokenizer: 13a (the standard), intl, char (per character), or none (at white space)."
    )
    lowercase: bool = setting(False, "Ignore case", "Compare both texts in lower case.")


class RougeReward(Component):
    """ROUGE of the response against the reference text of its row, 0 to 1. Needs a reference column in the data."""

    kind: Literal["rouge"] = "rouge"
    variant: Literal["rouge1", "rouge2", "rougeL", "rougeLsum"] = setting(
        "rougeL",
        "Variant",
        "Common words, common word pairs, the longest common sequence, or that line by line.",
        level="basic",
    )
    measure: Literal["fmeasure", "precision", "recall"] = setting(
        "fmeasure", "Measure", "precision: share of the response found in the reference; recall: the reverse; fmeasure: both."
    )
    stemmer: bool = setting(False, "Stem words", "Cut English word endings first, so that films and film agree.")
