"""A whole supervised training in memory, from the first step to the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlhf_studio.config import TrainingConfig
from rlhf_studio.engine.compute.allocator import keep_freed_memory
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import ONE_LANE, lanes_for_this_cpu
from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.engine.stages.supervised.trainer import StepNumbers, SupervisedTrainer


@dataclass(frozen=True)
class TrainingProgress:
    """How far a stage has come, reported after each optimizer step.

    Attributes:
        step, steps: steps done, and steps in all.
        loss: mean loss of this step's batch (SFT: nats per token; reward model and DPO: nats per pair).
        learning_rate: the learning rate of this step.
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


def compute_of(model: Any) -> Compute:
    """This process alone, where the model is, in float32; on a CPU in lanes."""
    if model.device.type == "cpu":
        keep_freed_memory()
    return Compute(model.device, torch.float32, lanes=lanes_for_this_cpu() if model.device.type == "cpu" else ONE_LANE)


def run_training(
    model: Any,
    items: Sequence[Any],
    objective: TrainingObjective[Any],
    config: TrainingConfig,
    seed: int,
    on_step: OnStep | None = None,
) -> tuple[SupervisedTrainer, list[StepNumbers]]:
    """Train to the end. Returns the trainer, and the numbers of every step.

    The caller's random state is left as it was, and so is the model's train or eval mode. Raises NonFiniteError when the loss or the
    gradient is not finite, ValueError when no item counts.
    """
    start = time.monotonic()
    trainer = SupervisedTrainer(model, items, objective, config, compute_of(model), seed)
    steps: list[StepNumbers] = []
    while not trainer.finished:
        done = trainer.step()
        steps.append(done)
        if on_step is not None:
            seconds = time.monotonic() - start
            on_step(TrainingProgress(done.step, trainer.total_steps, done.loss, done.learning_rate, done.grad_norm, seconds))
    return trainer, steps
