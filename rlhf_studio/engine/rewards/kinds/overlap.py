"""BLEU and ROUGE of a response against the reference text of its row, by the libraries that papers report."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlhf_studio.config import BleuReward, RougeReward
from rlhf_studio.engine.rewards.episodes import Answer, Episodes, Source
from rlhf_studio.engine.rewards.registry import BuildContext, scorer

Agreement = Callable[[str, str], float]
"""(response, reference) to a score from 0 to 1."""


@scorer(BleuReward)
def build_bleu(settings: BleuReward, context: BuildContext) -> Source:
    """Sentence BLEU with the row's reference."""
    return _per_pair(bleu(settings))


@scorer(RougeReward)
def build_rouge(settings: RougeReward, context: BuildContext) -> Source:
    """ROUGE with the row's reference."""
    return _per_pair(rouge(settings))


def _per_pair(agreement: Agreement) -> Source:
    def score(episodes: Episodes) -> Answer:
        pairs = zip(episodes.responses, episodes.required_references(), strict=True)
        return Answer(torch.tensor([agreement(response, reference) for response, reference in pairs], dtype=torch.float32))

    return score


def bleu(settings: BleuReward) -> Agreement:
    """Sentence BLEU with effective order: groups longer than the response are left out of the mean."""
    from sacrebleu.metrics import BLEU  # here, because only this needs it

    metric = BLEU(
        lowercase=settings.lowercase,
        tokenize=settings.tokenizer,
        smooth_method=settings.smoothing,
        max_ngram_order=settings.max_order,
        effective_order=True,
    )
    # Without any agreement some smoothings still give a little; a response without words is worth nothing.
    return lambda response, reference: metric.sentence_score(response, [reference]).score / 100 if response.strip() else 0.0


def rouge(settings: RougeReward) -> Agreement:
    """ROUGE, as the original implementation's Python port computes it."""
    from rouge_score.rouge_scorer import RougeScorer  # here, because only this needs it

    scorer = RougeScorer([settings.variant], use_stemmer=settings.stemmer)
    return lambda response, reference: float(getattr(scorer.score(reference, response)[settings.variant], settings.measure))
