"""Measuring a reward model on held-out pairs: every pair's scores, and whether they stay where the meaning stays.

The record is plain data. :func:`rlhf_studio.analysis.reward_model.report.reward_report` computes from it everything that people see.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from rlhf_studio.analysis.reward_model.pairs import ScoredPairs
from rlhf_studio.analysis.reward_model.report import RewardReport, most_wrong, reward_report
from rlhf_studio.engine.compute.sharding import as_forward
from rlhf_studio.engine.models.classifiers import last_token_logits
from rlhf_studio.engine.models.position_ids import position_scheme_of
from rlhf_studio.engine.stages.reward_model.finish import score_rows
from rlhf_studio.engine.stages.reward_model.rewrites import RULES
from rlhf_studio.inputs.world.gold import gold_score
from rlhf_studio.language import S_

EVENT = "reward_model_measured"
"""The kind of the event whose data is a measurement's record."""
MOST_REWRITTEN = 64  # pairs
MOST_PADDED = 32  # texts
LONGEST_SHOWN = 2000  # characters of a recorded text
EXTRA_PADDING = 5  # tokens beyond the longest text

Encode = Callable[[str, str], Sequence[int]]
"""Prompt and response to the token ids of the whole text, as the reward model reads it."""


class TokenPair(Protocol):
    """A held-out pair: token ids of its parts, and how people judged it."""

    @property
    def prompt(self) -> tuple[int, ...]: ...
    @property
    def chosen(self) -> tuple[int, ...]: ...
    @property
    def rejected(self) -> tuple[int, ...]: ...
    @property
    def tie(self) -> bool: ...
    @property
    def group(self) -> str: ...
    @property
    def number(self) -> int: ...


@dataclass(frozen=True)
class PairTexts:
    """The texts of a held-out pair. Rewriting and the world's gold reward need them."""

    prompt: str
    chosen: str
    rejected: str


@dataclass(frozen=True)
class Measurement:
    """The measurement of a reward model on its held-out pairs.

    Attributes:
        metrics: numbers of the step by their names.
        record: plain data for the event :data:`EVENT`: all pairs' scores, from which everything else can be computed again.
        report: what the record says, computed.
    """

    metrics: dict[str, float]
    record: dict[str, Any]
    report: RewardReport


def measure(
    model: Any,
    pairs: Sequence[TokenPair],
    *,
    end: int | None = None,
    scale: float = 1.0,
    texts: Sequence[PairTexts] | None = None,
    encode: Encode | None = None,
    gold: bool = False,
    thorough: bool = True,
    seed: int = 0,
) -> Measurement:
    """Score all pairs, each text once, and compute the measurements from the scores.

    Args:
        end: id that is put behind each text, where the model was trained so.
        scale: see :class:`ScoredPairs`; the standard deviation that the scores were divided by after training, 1 before.
        texts: of the same pairs, in their order; needed for ``gold``, and with ``encode`` for rewriting.
        gold: whether the texts are of the review world, so that each has a gold reward.
        thorough: also rewrite texts and pad them: five more scores for each of the first pairs.

    Raises ValueError when there are no pairs, or when texts and pairs are not the same number.
    """
    if not pairs:
        raise ValueError(S_("there are no held-out pairs to measure on"))
    if texts is not None and len(texts) != len(pairs):
        raise ValueError(S_(f"there are {len(texts)} texts for {len(pairs)} pairs"))
    tail = () if end is None else (end,)
    rows = [(*pair.prompt, *response, *tail) or (0,) for pair in pairs for response in (pair.chosen, pair.rejected)]
    scores = score_rows(model, rows).double().numpy()
    golds = _golds(texts) if gold and texts is not None else (None, None)
    scored = ScoredPairs(
        chosen=scores[0::2],
        rejected=scores[1::2],
        chosen_tokens=np.asarray([len(pair.chosen) for pair in pairs], dtype=np.float64),
        rejected_tokens=np.asarray([len(pair.rejected) for pair in pairs], dtype=np.float64),
        numbers=np.asarray([pair.number for pair in pairs], dtype=np.int64),
        ties=np.asarray([pair.tie for pair in pairs], dtype=bool),
        groups=tuple(pair.group for pair in pairs),
        chosen_gold=golds[0],
        rejected_gold=golds[1],
        scale=scale,
    )
    record: dict[str, Any] = {"pairs": scored.record()}
    if thorough:
        rewrites = {} if texts is None or encode is None else _rewrites(model, texts, scored, encode, tail, seed)
        record["consistency"] = {"rewrites": rewrites, "padding": padding_difference(model, rows[: 2 * MOST_PADDED : 2])}
    if thorough and texts is not None:
        worst = [(wrong.place, texts[wrong.place]) for wrong in most_wrong(scored)]
        record["texts"] = {
            str(index): [text[:LONGEST_SHOWN] for text in (pair.prompt, pair.chosen, pair.rejected)] for index, pair in worst
        }
    report = reward_report(record)
    return Measurement(metrics_of(report), record, report)


def metrics_of(report: RewardReport) -> dict[str, float]:
    """The numbers of a step; those that cannot be computed are left out."""
    metrics: dict[str, float | None] = {
        "reward_model/eval_loss": report.fit.log_loss,
        "reward_model/eval_accuracy": report.fit.accuracy.share,
        "reward_model/eval_margin": report.fit.margin,
        "reward_model/calibration_error": report.calibration.error,
        "reward_model/overconfidence": report.calibration.overconfidence,
        "reward_model/length_correlation": report.length.correlation,
        "reward_model/gold_accuracy": None if report.gold is None else report.gold.order.share,
    }
    return {name: value for name, value in metrics.items() if value is not None}


def _golds(texts: Sequence[PairTexts]) -> tuple[np.ndarray, np.ndarray]:
    both = np.asarray([gold_score(pair.prompt, response) for pair in texts for response in (pair.chosen, pair.rejected)], dtype=np.float64)
    return both[0::2], both[1::2]


# --- texts with the same meaning ---------------------------------------------------------------------------------------------------


def _rewrites(
    model: Any, texts: Sequence[PairTexts], scored: ScoredPairs, encode: Encode, tail: tuple[int, ...], seed: int
) -> dict[str, dict[str, list[float]]]:
    """For each rule the scores of the chosen responses before and after, and of the other response of each pair."""
    draw, scores_of = random.Random(seed), {}
    for name, rule in RULES.items():
        changed = [
            (index, pair, new) for index, pair in enumerate(texts[:MOST_REWRITTEN]) if (new := rule(pair.chosen, draw)) != pair.chosen
        ]
        rows = [(*encode(pair.prompt, text), *tail) or (0,) for _, pair, new in changed for text in (pair.chosen, new)]
        scores = score_rows(model, rows).tolist()
        others = [float(scored.rejected[index]) for index, _, _ in changed]
        scores_of[name] = {"before": scores[0::2], "after": scores[1::2], "others": others}
    return scores_of


@torch.no_grad()
def padding_difference(model: Any, rows: Sequence[Sequence[int]]) -> float:
    """The largest change of a score by padding: rows alone, in one batch padded on the right, and in one padded on the left.

    The left side is left out for a classifier whose head does not take one token's state.
    """
    was_training = model.training
    model.eval()
    try:
        alone = torch.cat([last_token_logits(model, [row], None)[:, 0] for row in rows])
        together = [last_token_logits(model, rows, None)[:, 0]]
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        if hasattr(inner, "score"):
            together.append(as_forward(model, lambda: _left_padded(inner, rows)))
    finally:
        model.train(was_training)
    return max(float((alone - scores).abs().max()) for scores in together)


def _left_padded(model: Any, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    longest = max(map(len, rows))
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None) or longest + EXTRA_PADDING
    width = max(longest, min(longest + EXTRA_PADDING, limit))
    ids = torch.tensor([[*[0] * (width - len(row)), *row] for row in rows], device=model.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
    positions = position_scheme_of(model)(ids, mask)
    states = model.base_model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).last_hidden_state
    scores: torch.Tensor = model.score(states[:, -1])[:, 0].float()
    return scores
