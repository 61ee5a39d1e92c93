"""Reward components that count the words which a response has in common with the reference text of its row."""

from __future__ import annotations

from typing import Literal

from rlhf_studio.config.base import setting
from rlhf_studio.config.reward_base import Component


class BleuReward(Component):
    """Sentence BLEU of the response against the reference text of its row, 0 to 1. Needs a reference column in the data."""

    title = "BLEU"
    group = "Against a reference"
    takes_reference = True

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

    title = "ROUGE"
    group = "Against a reference"
    takes_reference = True

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
