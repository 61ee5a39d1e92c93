"""What the policy said of each token when an update went through it for the last time."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_studio.engine.distributed.ranks import Ranks
from rlhf_studio.engine.types import Rollout


class LastLogprobs:
    """Taken while learning, so it costs no pass of its own. A token that no pass reached keeps what it was sampled with."""

    def __init__(self, rollout: Rollout, ranks: Ranks):
        self._ranks = ranks
        self._logprobs = rollout.logprobs.clone()
        self._minibatch = torch.zeros(len(rollout.tokens), dtype=torch.int64, device=rollout.logprobs.device)  # of the last note

    def note(self, minibatch: int, rows: Tensor, logprobs: Tensor) -> None:
        """``logprobs`` (b, t) of these rows in minibatch number ``minibatch``, counted from 1; t may be short of T."""
        self._logprobs[rows, : logprobs.shape[1]] = logprobs.detach()
        self._minibatch[rows] = minibatch

    def together(self) -> Tensor:
        """(B, T) float32: each row from the process that had it last; everyone must call this."""
        if self._ranks.size == 1:
            return self._logprobs
        everyone = self._ranks.gather(self._logprobs).unflatten(0, (self._ranks.size, -1))
        last = self._ranks.gather(self._minibatch).unflatten(0, (self._ranks.size, -1)).argmax(dim=0)
        return everyone[last, torch.arange(len(last), device=last.device)]
