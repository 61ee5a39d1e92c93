"""Reward-model training: a sequence classifier with one output learns which of two responses people prefer.

Bradley-Terry: P(chosen is preferred) = sigmoid(r_chosen - r_rejected), so the loss of a pair is
-log sigmoid(r_chosen - r_rejected). Only differences of scores matter to it. :func:`normalise_scores` chooses their zero and their
scale afterwards (Ziegler et al. 2019: mean 0 and variance 1 over samples of the starting policy).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from rlhf_studio.config import RewardTrainingConfig
from rlhf_studio.engine.models.classifiers import last_token_logits, own_pad, rescale_scores, score_head
from rlhf_studio.engine.stages.training_loop import OnStep, mean_loss, run_training


@dataclass(frozen=True)
class Preference:
    """A prompt with a preferred and a rejected response. Spaces between prompt and response belong to the responses."""

    prompt: str
    chosen: str
    rejected: str


@dataclass(frozen=True)
class RewardTrainingResult:
    """What a finished stage returns. Losses are in nats per pair; what is measured on eval pairs is None without any.

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


@dataclass(frozen=True)
class EncodedPair:
    """Token ids of two whole texts: the prompt with the chosen response, and the prompt with the rejected one."""

    chosen: tuple[int, ...]
    rejected: tuple[int, ...]


@dataclass(frozen=True)
class BradleyTerryObjective:
    """-log sigmoid(r_chosen - r_rejected), summed over pairs.

    ``pad_id`` fills the padding, unless it occurs in a text; None when the tokenizer has no pad token.
    """

    pad_id: int | None

    def count(self, items: Sequence[EncodedPair]) -> int:
        return len(items)

    def loss_sum(self, model: Any, items: Sequence[EncodedPair]) -> torch.Tensor:
        return -logsigmoid(self.margins(model, items)).sum()

    def margins(self, model: Any, items: Sequence[EncodedPair]) -> torch.Tensor:
        """r_chosen - r_rejected, float32 (B,). Chosen and rejected texts go through the model in one batch."""
        scores = last_token_logits(model, [pair.chosen for pair in items] + [pair.rejected for pair in items], self.pad_id)[:, 0]
        return scores[: len(items)] - scores[len(items) :]


def train_reward_model(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[Preference],
    config: RewardTrainingConfig,
    *,
    eval_pairs: Sequence[Preference] = (),
    on_step: OnStep | None = None,
) -> RewardTrainingResult:
    """Train ``model`` (a Hugging Face sequence classifier with one output, changed in place) on preference pairs.

    The tokenizer needs no pad token. The model's ``pad_token_id`` is set for other programs that load it: see :func:`name_pad_token`.
    Raises ValueError when there are no pairs or the model has several outputs, FloatingPointError when the loss or the gradient is not
    finite.
    """
    start = time.monotonic()
    if not pairs:
        raise ValueError("there are no preference pairs to learn from")
    if model.config.num_labels != 1:
        raise ValueError(f"a reward model has one output, this one has {model.config.num_labels}; load it with num_labels=1")
    name_pad_token(model, tokenizer)
    objective = BradleyTerryObjective(tokenizer.pad_token_id)
    losses = run_training(model, [encode_pair(tokenizer, pair, config) for pair in pairs], objective, config, on_step)
    held_out = [encode_pair(tokenizer, pair, config) for pair in eval_pairs]
    margins = _all_margins(model, held_out, objective, config.batch_size) if held_out else None
    return RewardTrainingResult(
        steps=len(losses),
        losses=tuple(losses),
        eval_loss=None if margins is None else mean_loss(model, held_out, objective, config.batch_size),
        eval_accuracy=None if margins is None else preference_accuracy(margins),
        eval_margin=None if margins is None else float(margins.mean()),
        seconds=time.monotonic() - start,
    )


def name_pad_token(model: Any, tokenizer: Any) -> None:
    """Write the tokenizer's pad token into the model's configuration: transformers scores the right-most token that is not this one.

    Where the tokenizer has no pad token apart from its end token, none is written. Plain transformers then scores one text at a time
    and refuses a batch. With the end token as pad token it would skip real end tokens, and give a wrong score without any warning.
    """
    model.config.get_text_config().pad_token_id = own_pad(tokenizer)


def initialise_head(model: Any, seed: int) -> None:
    """Draw the score head from N(0, 1 / sqrt(d + 1)), d the hidden size, and zero its bias (Ziegler et al. 2019).

    Raises ValueError when the model has no score head.
    """
    head = score_head(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=generator) / (head.in_features + 1) ** 0.5)
        if head.bias is not None:
            head.bias.zero_()


def encode_pair(tokenizer: Any, pair: Preference, config: RewardTrainingConfig) -> EncodedPair:
    """Both texts tokenized whole, as the reward model will get them later; a text that is too long loses its beginning, not its end."""
    ends = [tokenizer.eos_token_id] if config.append_eos else []
    chosen, rejected = (
        tuple([*tokenizer(pair.prompt + response)["input_ids"], *ends][-config.max_tokens :]) for response in (pair.chosen, pair.rejected)
    )
    return EncodedPair(chosen, rejected)


@torch.no_grad()
def score_texts(model: Any, tokenizer: Any, texts: Sequence[str], *, batch_size: int = 64, max_tokens: int = 512) -> torch.Tensor:
    """Scores of whole texts, float32 (N,), on the CPU. Dropout is off, and padding has no influence."""
    was_training = model.training
    model.eval()
    rows = [tuple(tokenizer(text)["input_ids"][-max_tokens:]) or (tokenizer.eos_token_id or 0,) for text in texts]
    parts = [rows[first : first + batch_size] for first in range(0, len(rows), batch_size)]
    scores = [last_token_logits(model, part, tokenizer.pad_token_id)[:, 0].cpu() for part in parts]
    model.train(was_training)
    return torch.cat(scores) if scores else torch.zeros(0)


def preference_accuracy(margins: torch.Tensor) -> float:
    """Share of margins (N,) above 0; a margin of exactly 0 counts one half."""
    return float((margins > 0).float().mean() + 0.5 * (margins == 0).float().mean())


def normalise_scores(model: Any, scores: torch.Tensor) -> None:
    """Rescale the model so that texts which scored ``scores`` (N,) score with mean 0 and standard deviation 1.

    :func:`rlhf_studio.engine.models.classifiers.rescale_scores` says where the change is stored, and what plain transformers makes of it.
    Raises ValueError when the scores do not vary, or when the model has no score head.
    """
    mean, std = float(scores.mean()), float(scores.std())
    if not std > 0:
        raise ValueError("the scores do not vary, so they cannot be scaled to variance 1")
    rescale_scores(model, 1 / std, -mean / std)


@torch.no_grad()
def _all_margins(model: Any, pairs: Sequence[EncodedPair], objective: BradleyTerryObjective, batch_size: int) -> torch.Tensor:
    was_training = model.training
    model.eval()
    margins = [objective.margins(model, pairs[first : first + batch_size]).cpu() for first in range(0, len(pairs), batch_size)]
    model.train(was_training)
    return torch.cat(margins)
