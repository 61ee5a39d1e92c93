"""The training loop that both supervised stages share: AdamW on the mean of an objective, one optimizer step per batch.

A stage gives its examples and a :class:`TrainingObjective` that says how to sum their loss. However a batch is cut into micro-batches,
and whatever stands in the padding, the loss and its gradient are those of the whole batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from rlhf_studio.config import TrainingConfig
from rlhf_studio.engine.learning_rate import learning_rate_factor


@dataclass(frozen=True)
class TrainingProgress:
    """How far a stage has come, reported after each optimizer step.

    Attributes:
        step, steps: steps done, and steps in all.
        loss: mean loss of this step's batch (SFT: nats per token; reward model: nats per pair).
        learning_rate: the one this step was taken with.
        grad_norm: norm of the gradient before clipping.
        seconds: time since the stage began.
    """

    step: int
    steps: int
    loss: float
    learning_rate: float
    grad_norm: float
    seconds: float


OnStep = Callable[[TrainingProgress], None]
"""Called after each optimizer step."""


class TrainingObjective(Protocol):
    """A loss that is a sum of one term per token or per pair, so that micro-batches of unequal size add up to the batch's mean."""

    def count(self, items: Sequence[Any]) -> int:
        """How many terms (tokens or pairs) the loss of these items is a sum of."""

    def loss_sum(self, model: Any, items: Sequence[Any]) -> torch.Tensor:
        """The summed loss of these items, a float32 scalar."""


def mean_loss(model: Any, items: Sequence[Any], objective: TrainingObjective, batch_size: int) -> float:
    """The objective's mean over all items, with dropout off and without gradients; the model's train or eval mode is kept."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        total = sum(float(objective.loss_sum(model, items[start : start + batch_size])) for start in range(0, len(items), batch_size))
    model.train(was_training)
    return total / objective.count(items)


def run_training(
    model: Any, items: Sequence[Any], objective: TrainingObjective, config: TrainingConfig, on_step: OnStep | None = None
) -> list[float]:
    """Minimise the objective with AdamW for ``config.epochs`` passes over the items, each in a new order; returns every step's loss.

    There is one optimizer step per batch. The caller's random state is left as it was, and so is the model's train or eval mode.
    Raises FloatingPointError when the loss or the gradient is not finite.
    """
    start = time.monotonic()
    optimizer = _optimizer(model, config)
    order = torch.Generator().manual_seed(config.seed)
    steps = config.epochs * math.ceil(len(items) / config.batch_size)
    losses: list[float] = []
    was_training = model.training
    model.train()
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        for _ in range(config.epochs):
            shuffled = [items[index] for index in torch.randperm(len(items), generator=order).tolist()]
            for first in range(0, len(shuffled), config.batch_size):
                rate = config.learning_rate * learning_rate_factor(len(losses), steps, config.warmup_steps, config.lr_schedule)
                loss, norm = _step(model, shuffled[first : first + config.batch_size], objective, optimizer, rate, config)
                losses.append(loss)
                if on_step is not None:
                    on_step(TrainingProgress(len(losses), steps, loss, rate, norm, time.monotonic() - start))
    model.train(was_training)
    return losses


def _optimizer(model: Any, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices alone; biases and norms, which are vectors, are not shrunk."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, config.adam_beta2))


def _step(
    model: Any, batch: Sequence[Any], objective: TrainingObjective, optimizer: torch.optim.Optimizer, rate: float, config: TrainingConfig
) -> tuple[float, float]:
    """One optimizer step on one batch: (mean loss, gradient norm before clipping)."""
    optimizer.zero_grad(set_to_none=True)
    for group in optimizer.param_groups:
        group["lr"] = rate
    count = objective.count(batch)
    size = config.micro_batch_size or len(batch)
    total = 0.0
    for first in range(0, len(batch), size):
        loss = objective.loss_sum(model, batch[first : first + size]) / count
        loss.backward()
        total += float(loss.detach())
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm or math.inf))
    if not (math.isfinite(total) and math.isfinite(norm)):
        raise FloatingPointError(f"the loss is {total} and the gradient norm {norm}; a lower learning rate often helps")
    optimizer.step()
    return total, norm
