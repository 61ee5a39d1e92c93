"""What a supervised stage minimises: a sum of one term per token or per pair, divided by how many terms there are.

However a batch is cut into micro-batches, lanes and ranks, the loss and its gradient are those of the whole batch, since the sums of the
parts add up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
Result = TypeVar("Result")


class Read(Protocol):
    """Runs ``work(model, part)`` without gradients over items in micro-batches, and gives one result for each item, in their order."""

    def __call__(self, work: Any, items: Sequence[Any]) -> list[Any]: ...


class TrainingObjective(ABC, Generic[Item]):
    """A loss for items of one kind.

    Attributes:
        keeps_dropout: whether the model's own dropout is on while it learns. It is off where two passes are compared, as in TRL
            (``disable_dropout``): they would differ by chance. Dropout of adapters, and before a new head, is a setting, and stays on.
    """

    keeps_dropout: ClassVar[bool] = True

    @abstractmethod
    def count(self, items: Sequence[Item]) -> float:
        """How many terms (tokens or pairs, times their weights) the loss of these items is a sum of."""

    @abstractmethod
    def tokens(self, items: Sequence[Item]) -> int:
        """How many tokens the model reads for these items."""

    @abstractmethod
    def loss_sum(self, model: Any, items: Sequence[Item]) -> torch.Tensor:
        """The summed loss of these items, a float32 scalar."""

    def learn(self, model: Any, items: Sequence[Item]) -> tuple[Tensor, dict[str, Tensor]]:
        """The summed loss, and by name sums of other numbers from the same pass. The names never change; most objectives have none."""
        return self.loss_sum(model, items), {}

    @abstractmethod
    def read(self, model: Any, items: Sequence[Item]) -> list[Any]:
        """For each item the numbers that its loss is made from, for people to look at. Called without gradients."""

    @abstractmethod
    def mean_of(self, items: Sequence[Item], results: Sequence[Any]) -> float:
        """The mean loss of these items, from what :meth:`read` gave for them: without another pass. The items must count something."""

    def prepare(self, model: Any, items: Sequence[Item], read: Read) -> None:
        """Compute what the loss of ``items`` needs beforehand. Called before the loss, outside of lanes."""

    def state(self, items: Sequence[Item]) -> dict[str, Tensor]:
        """The tensors that a checkpoint must store for this objective, by name. Most objectives have none."""
        return {}

    def restore(self, items: Sequence[Item], tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`state` returned."""
