"""Measuring any reward model on any preference pairs, with the scores that a PPO run with that model would give.

Unlike :mod:`.measure`, which belongs to training and scores the token ids that were trained on, this goes through the scorer of PPO: each
text is written and tokenised as :mod:`rlhf_studio.engine.rewards.kinds.reward_model` does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlhf_studio.analysis.reward_model.pairs import ScoredPairs
from rlhf_studio.config import NOTHING_ALLOWED, PairsConfig, RewardConfig, RewardModelReward
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.models.load_model import fetch
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer
from rlhf_studio.engine.rewards.scorer import Episodes, Scorer, build_scorer
from rlhf_studio.engine.text import chat_template
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.chat import Messages
from rlhf_studio.inputs.examples.rows import Pair
from rlhf_studio.inputs.examples.texts import pair_texts
from rlhf_studio.inputs.models.reward_models import read_reward_file
from rlhf_studio.inputs.prompts.messages import Fields
from rlhf_studio.inputs.prompts.prepare import with_system
from rlhf_studio.inputs.trained_text import TrainedText
from rlhf_studio.inputs.world.gold import gold_score
from rlhf_studio.language import S_

ROWS = 128
"""Pairs that are scored together."""


@dataclass(frozen=True)
class PairToScore:
    """The texts of a pair as a run has them: the prompt as the policy reads it, and the chat behind it where the model reads chats."""

    row: Pair
    prompt: str
    chosen: str
    rejected: str
    chat: Messages | None


@dataclass(frozen=True)
class PairsMeasured:
    """What came of a measurement.

    Attributes:
        pairs: the scores.
        texts: prompt, chosen and rejected response of each pair, in the same order.
        notes: sentences for people.
    """

    pairs: ScoredPairs
    texts: list[tuple[str, str, str]]
    notes: list[str]


def measure_on_pairs(
    reward: RewardModelReward, rows: Sequence[Pair], data: PairsConfig, compute: Compute, report: OnProgress
) -> PairsMeasured:
    """Score both responses of every pair.

    Args:
        reward: the model, and how a run would read it.
        rows: the pairs, as ``data`` was read.

    Raises :class:`ConfigError` for a model that cannot be loaded or read so, and RewardError for a score that is no number.
    """
    scorer = build_scorer(RewardConfig(components=[reward]), compute, report, NOTHING_ALLOWED)
    ((_, model),) = scorer.reward_models()
    saved = read_reward_file(Path(fetch(reward.model, reward.revision, report, "reward.model")))
    notes: list[str] = []
    pairs = _written(rows, data, model, saved.trained_on if saved else None, notes)
    if not pairs:
        raise ConfigError([Problem("--pairs", f"{data.source} holds no pair that can be scored")])
    scores, cut = _scores(scorer, pairs, report)
    if cut:
        notes.append(
            S_(f"{cut:,} of {len(scores):,} texts are longer than the model reads and lost their beginning, as they would in a run.")
        )
    if saved is None and not model.reads_chats and chat_template(model.tokenizer) is not None:
        notes.append(S_("The model's tokenizer has a chat template, which was not used; with --reward.chat_template own it is."))
    lengths = _lengths(model, pairs)
    golds = _golds(pairs) if data.source.startswith("bundled/world") else (None, None)
    scored = ScoredPairs(
        chosen=scores[0::2],
        rejected=scores[1::2],
        chosen_tokens=lengths[0::2],
        rejected_tokens=lengths[1::2],
        numbers=np.asarray([pair.row.number for pair in pairs], dtype=np.int64),
        ties=np.asarray([pair.row.tie for pair in pairs], dtype=bool),
        groups=tuple(pair.row.group for pair in pairs),
        chosen_gold=golds[0],
        rejected_gold=golds[1],
        scale=saved.normalised.std if saved and saved.normalised else 1.0,
    )
    return PairsMeasured(scored, [(pair.prompt, pair.chosen, pair.rejected) for pair in pairs], notes)


def _written(
    rows: Sequence[Pair], data: PairsConfig, model: RewardModelScorer, trained: TrainedText | None, notes: list[str]
) -> list[PairToScore]:
    """The texts of the pairs; ``notes`` takes what cannot be scored."""
    if data.chat_template and not model.reads_chats:
        message = (
            "writes prompts in the form of a policy's tokenizer, and there is no policy here; --reward.chat_template own writes "
            "whole chats in the form of the reward model's tokenizer"
        )
        raise ConfigError([Problem("data.chat_template", message)])
    usable = [row for row in rows if row.answers is None]
    plain = data.model_copy(update={"chat_template": False, "system_text": ""})  # a chat is written by the model's own template, later
    counts, pairs = Counter[str](), list[PairToScore]()
    for row, texts in zip(usable, pair_texts(usable, plain, None, counts, lambda: None, Fields()), strict=True):
        if texts is not None:
            pairs.append(PairToScore(row, *texts, _chat_of(row, data, trained) if model.reads_chats else None))
    if left := len(rows) - len(pairs):
        notes.append(S_(f"{left:,} of {len(rows):,} pairs were left out: their answers are more than a text, such as a call, or none."))
    if not model.reads_chats and counts["stuck"]:
        notes.append(
            S_(
                f"Nothing stands between the prompt and {counts['stuck']:,} of {counts['followed']:,} responses, not even a space; "
                "--data.prompt_format can say what does."
            )
        )
    return pairs


def _chat_of(row: Pair, data: PairsConfig, trained: TrainedText | None) -> Messages | None:
    """The conversation; None for a prompt that the template has written already."""
    if row.messages is None and trained is not None and trained.opens(row.prompt):
        return None
    return with_system(row.messages if row.messages is not None else [{"role": "user", "content": row.prompt}], data.system_text)


def _scores(scorer: Scorer, pairs: Sequence[PairToScore], report: OnProgress) -> tuple[np.ndarray, int]:
    """(2N,) scores, each chosen response before its rejected one, and how many texts lost their beginning."""
    scores, cut, done = np.empty(2 * len(pairs)), 0, 0
    for as_chats in (True, False):
        places = [place for place, pair in enumerate(pairs) if (pair.chat is not None) == as_chats]
        for start in range(0, len(places), ROWS):
            report(f"Scoring {len(pairs):,} pairs", done / len(pairs))
            some = places[start : start + ROWS]
            read = scorer.read(_episodes([pairs[place] for place in some]))
            both = read.sum.double().numpy()
            for side in (0, 1):
                scores[[2 * place + side for place in some]] = both[side::2]
            cut += 0 if read.reading is None else int((read.reading[:, 0] < read.reading[:, 1]).sum())
            done += len(some)
    return scores, cut


def _episodes(pairs: Sequence[PairToScore]) -> Episodes:
    """Both responses of each pair as finished responses. Lengths count as 0: a policy's tokens are unknown, and no reward model asks."""
    prompts = [pair.prompt for pair in pairs for _ in range(2)]
    responses = [text for pair in pairs for text in (pair.chosen, pair.rejected)]
    chats = [pair.chat for pair in pairs if pair.chat is not None for _ in range(2)]
    return Episodes(prompts, responses, [True] * len(responses), [0] * len(responses), None, chats or None)


def _lengths(model: RewardModelScorer, pairs: Sequence[PairToScore]) -> np.ndarray:
    """(2N,) tokens of each response alone, by the reward model's own tokenizer."""
    texts = [text for pair in pairs for text in (pair.chosen, pair.rejected)]
    ids = model.tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
    return np.asarray([len(row) for row in ids], dtype=np.float64)


def _golds(pairs: Sequence[PairToScore]) -> tuple[np.ndarray, np.ndarray]:
    golds = np.asarray([gold_score(pair.prompt, text) for pair in pairs for text in (pair.chosen, pair.rejected)], dtype=np.float64)
    return golds[0::2], golds[1::2]
