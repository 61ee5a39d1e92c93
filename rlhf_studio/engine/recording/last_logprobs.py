"""The log-probability of each token in the last pass of an update that reached it. The inspector shows it beside the old one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from rlhf_studio.engine.compute.ranks import Ranks
from rlhf_studio.engine.types import Rollout


class LastLogprobs:
    """Kept while learning, so it costs no forward pass of its own. A token that no minibatch reached keeps its sampling log-probability."""

    def __init__(self, rollout: Rollout, ranks: Ranks):
        self._ranks = ranks
        self._logprobs = rollout.logprobs.clone()
        self._minibatch = 0
        self._kept_in = torch.zeros(len(rollout.tokens), dtype=torch.int64, device=rollout.logprobs.device)  # minibatch, from 1

    def keep(self, new_logprobs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Take a minibatch's results: numbers of episodes (b,) and their new log-probabilities (b, t); t may be smaller than T."""
        self._minibatch += 1
        for rows, logprobs in new_logprobs:
            self._logprobs[rows, : logprobs.shape[1]] = logprobs
            self._kept_in[rows] = self._minibatch

    def gathered(self) -> Tensor:
        """(B, T) float32: each row from the rank that had it last; all ranks must call this."""
        if self._ranks.size == 1:
            return self._logprobs
        of_ranks = self._ranks.gather(self._logprobs).unflatten(0, (self._ranks.size, -1))
        last = self._ranks.gather(self._kept_in).unflatten(0, (self._ranks.size, -1)).argmax(dim=0)
        newest: Tensor = of_ranks[last, torch.arange(len(last), device=last.device)]
        return newest
