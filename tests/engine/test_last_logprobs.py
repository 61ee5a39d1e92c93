"""Which pass an update's log-probabilities are of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.engine.distributed.ranks import ONE_RANK, Ranks
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
    last.begin_minibatch()
    last.keep(torch.tensor([0, 1]), torch.full((2, 2), -1.0))
    last.begin_minibatch()
    last.keep(torch.tensor([1]), torch.full((1, 3), -2.0))
    assert last.gathered().tolist() == [[-1, -1, 0], [-2, -2, -2], [0, 0, 0]]


def test_each_row_comes_from_the_process_that_had_it_last() -> None:
    other = LastLogprobs(sampled(3), ONE_RANK)
    for _ in range(4):
        other.begin_minibatch()
    other.keep(torch.tensor([0, 2]), torch.full((2, 3), -4.0))
    mine = LastLogprobs(sampled(3), Pair([other._logprobs, other._kept_in]))
    for _ in range(3):
        mine.begin_minibatch()
    mine.keep(torch.tensor([0, 1]), torch.full((2, 3), -3.0))
    assert mine.gathered()[:, 0].tolist() == [-4, -3, -4]
