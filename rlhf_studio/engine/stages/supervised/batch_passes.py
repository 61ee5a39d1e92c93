"""Passes over one batch of items, however they are computed: in micro-batches, divided among lanes and ranks, packed or padded."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.gradient_checkpointing import computes_again
from rlhf_studio.engine.compute.gradients import add_gradients
from rlhf_studio.engine.compute.lanes import ONE_LANE, balanced_parts, rows_worth_a_lane
from rlhf_studio.engine.compute.packing import enable_packing
from rlhf_studio.engine.compute.random_layers import draws_random_numbers
from rlhf_studio.engine.compute.sharding import is_sharded
from rlhf_studio.engine.models.heads import HEAD_DROPOUT
from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.language import S_


@dataclass(frozen=True)
class _Part:
    """A micro-batch. With ``counts`` False it is there only because another rank has one more, and adds 0 to everything."""

    items: list[Any]
    counts: bool = True


@dataclass(frozen=True)
class BatchNumbers:
    """What a batch's passes say, over all micro-batches and ranks.

    Attributes:
        loss: the mean loss.
        sums: by name what the objective's ``learn`` gave, summed.
    """

    loss: float
    sums: dict[str, float]


class BatchPasses:
    """Computes the loss of items and its gradient.

    Args:
        model: what is trained, already on ``compute``'s device. On a CPU packing is switched on where its family allows it.
        micro_batch: most items in a forward pass; all lanes together hold so many at one time.
    """

    def __init__(self, model: Any, objective: TrainingObjective[Any], compute: Compute, micro_batch: int):
        self.model, self.objective, self.compute, self.micro_batch = model, objective, compute, micro_batch
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._least_rows = rows_worth_a_lane(model, self.parameters)
        # The second forward pass of gradient checkpointing would no longer know where the texts of a packed row end.
        packable = compute.device.type == "cpu" and not compute.ranks.sharded and not computes_again(model)
        self.packs = packable and enable_packing(model)
        self._learning = list(model.modules()) if objective.keeps_dropout else dropout_of_settings(model)
        # torch has one generator for all threads: the order in which lanes draw from it would change from run to run.
        self._training_compute = replace(compute, lanes=ONE_LANE) if draws_random_numbers(self._learning) else compute

    def add_gradients(self, items: Sequence[Any]) -> BatchNumbers:
        """Add the gradient of the mean loss to the parameters' ``grad``. Summed over all ranks."""
        count, compute = self.objective.count(items), self._training_compute
        self._prepare(items)

        names: list[str] = []

        def loss_of(part: _Part) -> tuple[Tensor, Tensor]:
            with compute.autocast():
                loss, sums = self.objective.learn(self.model, part.items)
            names[:] = sums
            loss = loss / count if part.counts else 0.0 * loss
            numbers = torch.stack([loss.detach(), *(total.detach().to(loss) for total in sums.values())])
            return loss, numbers if part.counts else torch.zeros_like(numbers)

        with _mode(self.model.modules(), training=False), _mode(self._learning, training=True):
            numbers = add_gradients(compute.lanes, self.parameters, self._parts(items, compute), loss_of)
        compute.ranks.all_reduce([gradient for gradient in self.gradients() if not is_sharded(gradient)])  # FSDP has reduced the others
        loss, *sums = compute.ranks.all_reduce_sum(torch.stack(numbers).double().sum(dim=0).tolist())
        return BatchNumbers(loss, dict(zip(names, sums, strict=True)))

    def gradients(self) -> list[Tensor]:
        """The gradients that there are."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def mean_loss(self, items: Sequence[Any]) -> float:
        """The mean loss over all items, with dropout off and without gradients. Raises ValueError when there is nothing to count."""
        count = self.objective.count(items)
        if not count > 0:
            raise ValueError(S_("there is no token or pair that counts, so there is no mean loss"))
        self._prepare(items)

        def loss_of(part: _Part) -> float:
            with self.compute.autocast():
                loss = float(self.objective.loss_sum(self.model, part.items))
            return loss if part.counts else 0.0

        with _mode(self.model.modules(), training=False), torch.no_grad():
            losses = self.compute.lanes.map(loss_of, self._parts(items, self.compute))
        return self.compute.ranks.all_reduce_sum([math.fsum(losses)])[0] / count

    def read(self, items: Sequence[Any]) -> list[Any]:
        """What the objective reads of each item, in the order of the items. Every rank computes all of it."""
        self._prepare(items)
        return self._read(self.objective.read, items)

    def _prepare(self, items: Sequence[Any]) -> None:
        self.objective.prepare(self.model, items, self._read)

    def _read(self, work: Callable[[Any, Sequence[Any]], list[Any]], items: Sequence[Any]) -> list[Any]:
        order = self._by_length(items)
        parts = self._cut(order, self.compute)

        def of_part(rows: list[int]) -> list[Any]:
            with self.compute.autocast():
                return work(self.model, [items[row] for row in rows])

        with _mode(self.model.modules(), training=False), torch.no_grad():
            results = self.compute.lanes.map(of_part, parts)
        result_of = dict(zip(chain.from_iterable(parts), chain.from_iterable(results), strict=True))
        return [result_of[row] for row in range(len(items))]

    def _by_length(self, items: Sequence[Any]) -> list[int]:
        lengths = [self.objective.tokens([item]) for item in items]
        return sorted(range(len(items)), key=lengths.__getitem__)

    def _parts(self, items: Sequence[Any], compute: Compute) -> list[_Part]:
        """This rank's micro-batches. Every rank gets its share of short and long items.

        With sharded weights every forward pass needs all ranks, so that all have equally many; and a rank without items needs one for its
        gradients to be there.
        """
        order, ranks = self._by_length(items), compute.ranks
        shares = [self._cut(share, compute) for share in balanced_parts(order, ranks.size)]
        own = shares[ranks.rank] if ranks.rank < len(shares) else []
        parts = [_Part([items[row] for row in rows]) for rows in own]
        fewest = max(len(share) for share in shares) if ranks.sharded else 1
        return parts + [_Part([items[order[0]]], counts=False)] * max(fewest - len(parts), 0)

    def _cut(self, order: list[int], compute: Compute) -> list[list[int]]:
        """Row numbers, ascending in length, in micro-batches that are divided among the lanes."""
        size = compute.lanes.rows_per_part(len(order), self.micro_batch, self._least_rows)
        if self.packs:
            return balanced_parts(order, math.ceil(len(order) / size))
        return [order[first : first + size] for first in range(0, len(order), size)]  # padded: similar lengths together


def dropout_of_settings(model: nn.Module) -> list[nn.Module]:
    """The modules whose dropout a setting asked for: LoRA's, and the head of a classifier."""
    return [module for name, module in model.named_modules() if ".lora_dropout." in name or HEAD_DROPOUT in vars(module)]


@contextlib.contextmanager
def _mode(modules: Iterable[nn.Module], *, training: bool) -> Iterator[None]:
    """Inside, these modules are in training mode, or in evaluation mode; afterwards each is as it was."""
    before = [(module, module.training) for module in modules if module.training != training]
    for module, _ in before:
        module.training = training
    try:
        yield
    finally:
        for module, was in before:
            module.training = was
