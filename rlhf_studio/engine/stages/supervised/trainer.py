"""Supervised training: AdamW on the mean of an objective, one optimizer step per batch, and a state from which it goes on bit for bit.

Every epoch goes through all items in a new random order. The same seed gives the same result on a CPU with the same number of threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.config import TrainingConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.sharding import clip_gradients, gradient_norm
from rlhf_studio.engine.learning_rate import learning_rate_factor
from rlhf_studio.engine.stages.supervised.batch_passes import BatchPasses
from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.language import S_

OBJECTIVE = "objective/"
"""The names of an objective's own tensors in a trainer's state begin with this."""


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of an optimizer step.

    Attributes:
        step: its number, counted from 1.
        epoch: passes over the items up to its end, such as 1.5.
        loss: mean loss of the batch before the step (nats per token, or per pair).
        learning_rate: the one this step was taken with.
        grad_norm: norm of the gradient before clipping.
        count: terms (tokens or pairs, times their weights) that the loss is the mean of.
        tokens: tokens that the model read.
        seconds: time of this step.
        items: the batch, as numbers of items.
        sums: what else the objective says of the batch, by name (see its ``learn``).
        problem: why the step was not taken; empty when it was.
    """

    step: int
    epoch: float
    loss: float
    learning_rate: float
    grad_norm: float
    count: float
    tokens: int
    seconds: float
    items: tuple[int, ...]
    sums: dict[str, float] = field(default_factory=dict)
    problem: str = ""


class SupervisedTrainer:
    """Trains a model, in place, on items that an objective understands.

    With several ranks all of them hold all items and call the same methods; each computes its share of every batch.

    Args:
        model: a model of transformers, with or without LoRA, on ``compute``'s device. Its train or eval mode is kept between steps.
        items: what is learned from. Items that count nothing (no token, or weight 0) are never in a batch.
        seed: of the order of the items, and of dropout.
        skip_non_finite: leave out a step whose loss or gradient is not finite, instead of raising.

    Attributes:
        step_number: steps done.
        optimizer: AdamW; its state is not part of :meth:`state`.
        left_out: how many items count nothing.

    Raises ValueError when no item counts.
    """

    def __init__(
        self,
        model: Any,
        items: Sequence[Any],
        objective: TrainingObjective[Any],
        config: TrainingConfig,
        compute: Compute,
        seed: int,
        *,
        skip_non_finite: bool = False,
    ):
        self.model, self.items, self.objective, self.config, self.compute = model, items, objective, config, compute
        self.skip_non_finite = skip_non_finite
        self._usable = [number for number, item in enumerate(items) if objective.count([item]) > 0]
        if not self._usable:
            raise ValueError(S_("there is nothing to learn from: no example has a token or a weight that counts"))
        self.left_out = len(items) - len(self._usable)
        self._passes = BatchPasses(model, objective, compute, config.micro_batch)
        self.optimizer = make_optimizer(self._passes.parameters, config)
        self.step_number, self._epoch, self._position = 0, 0, 0
        self._seed, self._generator = seed, torch.Generator().manual_seed(seed)
        self._shuffle()

    # --- how far it is -----------------------------------------------------------------------------------------------------

    @property
    def total_steps(self) -> int:
        """Steps of the whole training: those done, and those that the rest of the items still needs."""
        size, count = self.config.batch_size, len(self._usable)
        steps_left = math.ceil((count - self._position) / size) + max(self.config.epochs - self._epoch - 1, 0) * math.ceil(count / size)
        steps = self.step_number + (steps_left if self._epoch < self.config.epochs else 0)
        return min(steps, self.config.max_steps) if self.config.max_steps else steps

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step_number >= self.total_steps

    @property
    def epoch(self) -> float:
        """Passes over the items that are done, such as 1.5."""
        return self._epoch + self._position / len(self._usable)

    # --- training ----------------------------------------------------------------------------------------------------------

    def step(self) -> StepNumbers:
        """One optimizer step on the next batch. The caller's random state is left as it was.

        Raises NonFiniteError, before the step, when the loss or the gradient is not finite and such steps are not to be skipped.
        """
        if self.finished:
            raise RuntimeError("the training is finished")
        start = time.monotonic()
        numbers = self._order[self._position : self._position + self.config.batch_size]
        batch = [self.items[number] for number in numbers]
        rate = self._set_learning_rate()
        self.optimizer.zero_grad(set_to_none=True)
        with _random_numbers_of(self.compute.device, self._seed, self.step_number, self.compute.ranks.rank):
            totals = self._passes.add_gradients(batch)
        norm = gradient_norm(self._passes.gradients(), self.compute.ranks)
        problem = self._apply(totals.loss, norm)
        self._advance(len(batch))
        self.compute.synchronise()
        return StepNumbers(
            step=self.step_number,
            epoch=self.epoch,
            loss=totals.loss,
            learning_rate=rate,
            grad_norm=float(norm),
            count=self.objective.count(batch),
            tokens=self.objective.tokens(batch),
            seconds=time.monotonic() - start,
            items=tuple(numbers),
            sums=totals.sums,
            problem=problem,
        )

    def mean_loss(self, items: Sequence[Any]) -> float:
        """The objective's mean over these items, with dropout off and without gradients."""
        return self._passes.mean_loss(items)

    def read(self, items: Sequence[Any]) -> list[Any]:
        """What the objective reads of each item (see its ``read``), with dropout off and without gradients."""
        return self._passes.read(items)

    def use(self, config: TrainingConfig) -> None:
        """Go on with the settings of ``config`` from the next step on."""
        self.config, self._passes.micro_batch = config, config.micro_batch
        for group in self.optimizer.param_groups:
            group["betas"] = (group["betas"][0], config.adam_beta2)
            group["weight_decay"] = config.weight_decay if group["decays"] else 0.0

    def _apply(self, loss: float, norm: Tensor) -> str:
        if not (math.isfinite(loss) and torch.isfinite(norm)):
            problem = f"the loss is {loss} and the gradient norm {float(norm)}; a lower learning rate often helps"
            if not self.skip_non_finite:
                raise NonFiniteError(problem)
            self.optimizer.zero_grad(set_to_none=True)
            return problem
        if self.config.max_grad_norm:
            clip_gradients(self._passes.gradients(), self.config.max_grad_norm, norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)  # frees the gradients' memory for evaluations between steps
        return ""

    def _set_learning_rate(self) -> float:
        config = self.config
        factor = learning_rate_factor(self.step_number, self.total_steps, config.warmup_steps, config.lr_schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * factor
        return config.learning_rate * factor

    def _advance(self, count: int) -> None:
        self.step_number += 1
        self._position += count
        if self._position == len(self._usable):
            self._epoch, self._position = self._epoch + 1, 0
            self._shuffle()

    def _shuffle(self) -> None:
        """Draw the order of the next epoch. The generator's earlier state is stored, so that the order can be drawn again."""
        self._before_epoch = self._generator.get_state()
        order = torch.randperm(len(self._usable), generator=self._generator).tolist()
        self._order = [self._usable[index] for index in order]

    # --- going on after an interruption ------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """All that :meth:`restore` needs beside the weights and the optimizer: JSON values, and tensors (random states are uint8)."""
        numbers = {
            "step": self.step_number,
            "epoch": self._epoch,
            "place": self._position,
            "examples": len(self.items),
            "usable": len(self._usable),
            "threads": torch.get_num_threads(),
            "device": self.compute.device.type,
        }
        own = {OBJECTIVE + name: tensor for name, tensor in self.objective.state(self.items).items()}
        return numbers, {"shuffling": self._before_epoch.clone(), **own}

    def restore(self, numbers: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[str]:
        """Go on from a saved state; the caller restores weights and optimizer. Returns what may differ from before, one clause each.

        Raises ValueError when the state was saved with other examples.
        """
        before, now = (numbers["examples"], numbers["usable"]), (len(self.items), len(self._usable))
        if before != now:
            raise ValueError(
                S_(f"the training was saved with {before[0]} examples, {before[1]} of which count, but now there are {now[0]} and {now[1]}")
            )
        self.step_number, self._epoch, self._position = numbers["step"], numbers["epoch"], numbers["place"]
        self._generator.set_state(tensors["shuffling"])
        self._shuffle()
        self.objective.restore(self.items, {name.removeprefix(OBJECTIVE): x for name, x in tensors.items() if name.startswith(OBJECTIVE)})
        device, threads, changes = self.compute.device.type, torch.get_num_threads(), []
        if numbers["device"] != device:
            changes.append(
                S_(f"the run was on {numbers['device']} and goes on with {device}: results differ in the last bits, and dropout's draws")
            )
        if numbers["threads"] != threads:
            changes.append(f"CPU threads: {numbers['threads']} before, {threads} now, so results may differ in the last bits")
        return changes


def make_optimizer(parameters: Sequence[torch.nn.Parameter], config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices alone; biases and norms, which are vectors, are not shrunk."""
    groups = [
        {"params": [parameter for parameter in parameters if parameter.ndim >= 2], "weight_decay": config.weight_decay, "decays": True},
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0, "decays": False},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, config.adam_beta2), fused=True)


@contextlib.contextmanager
def _random_numbers_of(device: torch.device, *numbers: int) -> Iterator[None]:
    """Inside, dropout draws numbers that belong to these numbers (seed, step and rank). Afterwards the caller's random state is as it was.

    So a checkpoint needs no random state of dropout: a step draws the same numbers whenever it is taken.
    """
    digest = hashlib.sha256(" ".join(map(str, numbers)).encode()).digest()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int.from_bytes(digest[:7], "big"))
        yield
