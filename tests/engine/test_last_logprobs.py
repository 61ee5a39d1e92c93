"""Which pass an update's log-probabilities are of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.engine.compute.ranks import ONE_RANK, Ranks
from rlhf_studio.engine.recording.last_logprobs import LastLogprobs


class Pair(Ranks):
    """The first of two processes; what the other one sends is given."""

    size = 2

    def __init__(self, sent: list[Tensor]):
        self._sent = sent

    def gather(self, x: Tensor) -> Tensor:
        return torch.cat([x, self._sent.pop(0)])


def sampled(rows: int) -> Any:
    return SimpleNamespace(logprobs=torch.zeros(rows, 3), tokens=range(rows))


def test_later_minibatches_replace_earlier_ones_and_untouched_rows_stay() -> None:
    last = LastLogprobs(sampled(3), ONE_RANK)
    last.keep([(torch.tensor([0]), torch.full((1, 2), -1.0)), (torch.tensor([1]), torch.full((1, 2), -1.0))])
    last.keep([(torch.tensor([1]), torch.full((1, 3), -2.0))])
    assert last.gathered().tolist() == [[-1, -1, 0], [-2, -2, -2], [0, 0, 0]]


def test_each_row_comes_from_the_rank_that_had_it_last() -> None:
    other = LastLogprobs(sampled(3), ONE_RANK)
    for minibatch in ([], [], [], [(torch.tensor([0, 2]), torch.full((2, 3), -4.0))]):
        other.keep(minibatch)
    mine = LastLogprobs(sampled(3), Pair([other._logprobs, other._kept_in]))
    for minibatch in ([], [], [(torch.tensor([0, 1]), torch.full((2, 3), -3.0))]):
        mine.keep(minibatch)
    assert mine.gathered()[:, 0].tolist() == [-4, -3, -4]
