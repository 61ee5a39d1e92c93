"""What the stages that learn from preferences share: a loss over pairs, and numbers that say how a model orders them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.inputs.examples.encoded import EncodedPair


@dataclass(frozen=True)
class PairScores:
    """The scores of a pair's two responses."""

    chosen: float
    rejected: float

    @property
    def margin(self) -> float:
        return self.chosen - self.rejected


class PairObjective(TrainingObjective[EncodedPair]):
    """A loss of preferring the chosen response, summed over pairs with their weights.

    Args:
        label_smoothing: the share of pairs that are assumed to be labelled the wrong way round.
    """

    keeps_dropout = False

    def __init__(self, label_smoothing: float):
        self.label_smoothing = label_smoothing

    def count(self, items: Sequence[EncodedPair]) -> float:
        return math.fsum(item.weight for item in items)

    def tokens(self, items: Sequence[EncodedPair]) -> int:
        return sum(2 * len(item.prompt) + len(item.chosen) + len(item.rejected) for item in items)

    def loss_sum(self, model: Any, items: Sequence[EncodedPair]) -> Tensor:
        return self.learn(model, items)[0]

    @abstractmethod
    def learn(self, model: Any, items: Sequence[EncodedPair]) -> tuple[Tensor, dict[str, Tensor]]:
        """The summed loss, and the sums of :func:`pair_sums` from the same pass."""

    def wrong_way_round(self, items: Sequence[EncodedPair], like: Tensor) -> Tensor:
        """The share of each pair that counts in the opposite order, (B,): one half for a tie."""
        return like.new_tensor([0.5 if item.tie else self.label_smoothing for item in items])


def pair_sums(chosen: Tensor, rejected: Tensor, items: Sequence[EncodedPair]) -> dict[str, Tensor]:
    """Sums over the pairs with these scores, (B,), without ties. The weights of pairs are not used: they count in the loss only.

    ``decided``: how many there are; ``right``: those whose chosen response scores higher, and half of those that score equally;
    ``chosen``, ``rejected``: the scores.
    """
    counts = chosen.new_tensor([0.0 if item.tie else 1.0 for item in items])
    right = (chosen > rejected).to(chosen) + 0.5 * (chosen == rejected)
    sums = {"right": right, "chosen": chosen.detach(), "rejected": rejected.detach()}
    return {"decided": counts.sum()} | {name: (counts * values).sum() for name, values in sums.items()}


def pair_means(sums: Mapping[str, float]) -> dict[str, float]:
    """Means over the pairs that are not ties, from the sums of :func:`pair_sums`; empty where all are ties."""
    count = sums["decided"]
    return {name: value / count for name, value in sums.items() if name != "decided"} if count else {}
