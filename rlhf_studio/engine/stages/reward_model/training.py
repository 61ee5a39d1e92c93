"""Reward-model training: a sequence classifier with one output learns which of two responses people prefer.

Bradley-Terry: P(chosen is preferred) = sigmoid(r_chosen - r_rejected), so the loss of a pair is
-log sigmoid(r_chosen - r_rejected). Only differences of scores matter to it. Their zero and their scale are chosen afterwards
(:func:`~rlhf_studio.engine.models.classifiers.normalise_scores`; Ziegler et al. 2019: mean 0 and variance 1 over samples of the starting
policy).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlhf_studio.config import RewardTrainingConfig
from rlhf_studio.engine.models.classifiers import own_pad, score_head
from rlhf_studio.engine.models.heads import draw_head
from rlhf_studio.engine.models.text_passes import text_scores
from rlhf_studio.engine.stages.supervised.pairs import PairObjective, PairScores, pair_sums
from rlhf_studio.engine.stages.supervised.training_loop import OnStep, run_training
from rlhf_studio.engine.text import cut_left
from rlhf_studio.inputs.examples.encoded import EncodedPair
from rlhf_studio.language import S_


@dataclass(frozen=True)
class Preference:
    """A prompt with a preferred and a rejected response. Spaces between prompt and response belong to the responses."""

    prompt: str
    chosen: str
    rejected: str


@dataclass(frozen=True)
class RewardTrainingResult:
    """What a finished stage returns. Losses are in nats per pair. Numbers of eval pairs are None without such pairs.

    Attributes:
        steps: optimizer steps taken.
        losses: the training loss of each step.
        eval_loss: mean loss over the eval pairs.
        eval_accuracy: share of eval pairs whose chosen response scores higher; a tie counts one half.
        eval_margin: mean of r_chosen - r_rejected over the eval pairs.
        seconds: time of the whole stage.
    """

    steps: int
    losses: tuple[float, ...]
    eval_loss: float | None
    eval_accuracy: float | None
    eval_margin: float | None
    seconds: float


class BradleyTerryObjective(PairObjective):
    """The loss of preferring the chosen response, summed over pairs with their weights.

    With d = r_chosen - r_rejected, margin m and q, the share that is assumed to be the wrong way round (``label_smoothing``; for a tie one
    half), the loss of a pair is ``-(1 - q) log sigmoid(d - m) - q log sigmoid(-d - m) + centering (r_chosen + r_rejected)^2``. A tie
    that is read from data has no margin (m = 0).
    Sources: margin: Touvron et al. 2023 (Llama 2), equation 2; centering: Eisenstein et al. 2023, arXiv:2312.09244, section 2.

    Args:
        pad_id: fills the padding where texts are padded, unless it occurs in a text; None when the tokenizer has no pad token.
    """

    def __init__(self, pad_id: int | None, *, centering: float = 0.0, label_smoothing: float = 0.0):
        super().__init__(label_smoothing)
        self.pad_id, self.centering = pad_id, centering

    def learn(self, model: Any, items: Sequence[EncodedPair]) -> tuple[Tensor, dict[str, Tensor]]:
        chosen, rejected = self._scores(model, items)
        return self._loss_sum(chosen, rejected, items), pair_sums(chosen, rejected, items)

    def mean_of(self, items: Sequence[EncodedPair], results: Sequence[PairScores]) -> float:
        chosen, rejected = torch.tensor([(scores.chosen, scores.rejected) for scores in results]).T
        return float(self._loss_sum(chosen, rejected, items)) / self.count(items)

    def _loss_sum(self, chosen: Tensor, rejected: Tensor, items: Sequence[EncodedPair]) -> Tensor:
        margins, weights = (
            chosen.new_tensor(column) for column in zip(*((item.margin or 0.0, item.weight) for item in items), strict=True)
        )
        wrong = self.wrong_way_round(items, chosen)
        loss = -(1 - wrong) * logsigmoid(chosen - rejected - margins) - wrong * logsigmoid(rejected - chosen - margins)
        if self.centering:
            loss = loss + self.centering * (chosen + rejected).square()
        return (weights * loss).sum()

    def read(self, model: Any, items: Sequence[EncodedPair]) -> list[PairScores]:
        """The two scores of each pair."""
        chosen, rejected = (scores.tolist() for scores in self._scores(model, items))
        return [PairScores(*pair) for pair in zip(chosen, rejected, strict=True)]

    def _scores(self, model: Any, items: Sequence[EncodedPair]) -> tuple[Tensor, Tensor]:
        """(B,) of the chosen and of the rejected texts, which go through the model in one batch."""
        texts = [item.prompt + item.chosen for item in items] + [item.prompt + item.rejected for item in items]
        scores = text_scores(model, texts, self.pad_id, twins=True)
        return scores[: len(items)], scores[len(items) :]


def train_reward_model(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[Preference],
    config: RewardTrainingConfig,
    *,
    seed: int = 0,
    max_tokens: int = 512,
    eval_pairs: Sequence[Preference] = (),
    on_step: OnStep | None = None,
) -> RewardTrainingResult:
    """Train ``model`` (a Hugging Face sequence classifier with one output, changed in place) on preference pairs.

    Texts longer than ``max_tokens`` lose their beginning. The tokenizer needs no pad token. The model's ``pad_token_id`` is set for other
    programs that load it: see :func:`name_pad_token`. Raises ValueError when there are no pairs or the model has several outputs,
    NonFiniteError when the loss or the gradient is not finite.
    """
    start = time.monotonic()
    if not pairs:
        raise ValueError(S_("there are no preference pairs to learn from"))
    if model.config.num_labels != 1:
        raise ValueError(S_(f"a reward model has one output, this one has {model.config.num_labels}; load it with num_labels=1"))
    name_pad_token(model, tokenizer)
    objective = BradleyTerryObjective(tokenizer.pad_token_id, centering=config.centering, label_smoothing=config.label_smoothing)

    def encoded(several: Sequence[Preference]) -> list[EncodedPair]:
        return [encode_pair(tokenizer, pair, config.append_eos, max_tokens) for pair in several]

    trainer, steps = run_training(model, encoded(pairs), objective, config, seed, on_step)
    held_out = encoded(eval_pairs)
    margins = torch.tensor([scores.margin for scores in trainer.read(held_out)]) if held_out else None
    return RewardTrainingResult(
        steps=len(steps),
        losses=tuple(step.loss for step in steps),
        eval_loss=None if margins is None else trainer.mean_loss(held_out),
        eval_accuracy=None if margins is None else preference_accuracy(margins),
        eval_margin=None if margins is None else float(margins.mean()),
        seconds=time.monotonic() - start,
    )


def name_pad_token(model: Any, tokenizer: Any) -> None:
    """Write the tokenizer's pad token into the model's configuration: transformers scores the right-most token that is not this one.

    Where the tokenizer has no pad token apart from its end token, none is written. Plain transformers then scores one text at a time
    and refuses a batch. With the end token as pad token it would skip real end tokens, and give a wrong score without any warning.
    """
    model.config.get_text_config().pad_token_id = own_pad(tokenizer, model)


def initialise_head(model: Any, seed: int) -> None:
    """Draw the score head from N(0, 1 / sqrt(d + 1)), d the hidden size, and zero its bias (Ziegler et al. 2019).

    Raises ValueError when the model has no score head.
    """
    draw_head(score_head(model), torch.Generator().manual_seed(seed))


def encode_pair(tokenizer: Any, pair: Preference, append_eos: bool, max_tokens: int) -> EncodedPair:
    """Both texts tokenized whole, as the reward model will get them later; a text that is too long loses its beginning, not its end."""
    ends = [tokenizer.eos_token_id] if append_eos else []
    chosen, rejected = (
        tuple(_cut([*tokenizer(pair.prompt + response)["input_ids"], *ends], max_tokens, tokenizer))
        for response in (pair.chosen, pair.rejected)
    )
    return EncodedPair((), chosen, rejected)


def _cut(ids: list[int], most: int, tokenizer: Any) -> list[int]:
    """The last ``max_tokens`` ids. Warns where others are lost; Python shows the warning once."""
    if len(ids) > most:
        warnings.warn(S_(f"texts of more than {most:,} tokens lose their beginning; use a larger max_tokens to keep it"), stacklevel=3)
    return cut_left(ids, most, tokenizer)


@torch.no_grad()
def score_texts(model: Any, tokenizer: Any, texts: Sequence[str], *, batch_size: int = 64, max_tokens: int = 512) -> torch.Tensor:
    """Scores of texts, float32 (N,), on the CPU. Dropout is off, and padding has no influence. Longer texts lose their beginning."""
    was_training = model.training
    model.eval()
    rows = [tuple(_cut(tokenizer(text)["input_ids"], max_tokens, tokenizer)) or (tokenizer.eos_token_id or 0,) for text in texts]
    parts = [rows[first : first + batch_size] for first in range(0, len(rows), batch_size)]
    scores = [text_scores(model, part, tokenizer.pad_token_id).cpu() for part in parts]
    model.train(was_training)
    return torch.cat(scores) if scores else torch.zeros(0)


def preference_accuracy(margins: torch.Tensor) -> float:
    """Share of margins (N,) above 0; a margin of exactly 0 counts one half."""
    return float((margins > 0).float().mean() + 0.5 * (margins == 0).float().mean())
