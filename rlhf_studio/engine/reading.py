"""What a model says about responses that are already there: one forward pass, in parts of a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_studio.engine.device import Compute
from rlhf_studio.engine.fused import consume_logits
from rlhf_studio.engine.policy import Policy, Reference, ResponseModel, spread
from rlhf_studio.engine.types import Alternatives, TokenBatch
from rlhf_studio.ppo.kl import full_kl
from rlhf_studio.ppo.logprobs import log_distribution

TOP = 5


@dataclass(frozen=True)
class Reading:
    """One model's view of a batch.

    Attributes:
        logprobs: (B, T) float32 of the sampled tokens, at the sampling temperature.
        entropy: (B, T) of the distributions they were drawn from; 0 where it was not asked for.
        values: (B, T) of the critic; 0 where there is none.
        top: likeliest tokens of the recorded episodes, None when there are none.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor
    top: Alternatives | None


@dataclass(frozen=True)
class Reader:
    """Reads batches in parts of ``size`` episodes, so that logits for all of them need not fit into memory."""

    compute: Compute
    temperature: float
    size: int

    @torch.no_grad()
    def read(self, model: ResponseModel, tokens: TokenBatch, recorded: int, *, critic: Policy | None = None) -> Reading:
        """Log-probabilities and the recorded episodes' likeliest tokens; with ``critic`` also entropy and values.

        ``critic`` is the policy itself: the hidden states that its value head reads are those of this pass.
        """
        logprobs, entropy, values = (torch.zeros(tokens.mask.shape, device=tokens.mask.device) for _ in range(3))
        top = _TopTable(recorded, tokens.mask.shape[1])
        for index, part in self._parts(tokens):
            width = part.mask.shape[1]
            with self.compute.autocast():
                logits, hidden = model(part)
            if index[0] < recorded:
                top.add(logits, part, index[0], self.temperature)
            chosen = consume_logits(logits, part.response_ids[part.mask], self.temperature, with_entropy=critic is not None)
            rows = torch.tensor(index, device=tokens.mask.device)
            logprobs[rows, :width] = spread(chosen[0], part.mask)
            if critic is not None:
                entropy[rows, :width] = spread(chosen[1], part.mask)
                values[rows, :width] = spread(self._values(critic, hidden, part), part.mask)
        return Reading(logprobs, entropy, values, top.finish())

    @torch.no_grad()
    def values(self, policy: Policy, tokens: TokenBatch) -> Tensor:
        """(B, T) values of a critic that has its own trunk."""
        values = torch.zeros(tokens.mask.shape, device=tokens.mask.device)
        for index, part in self._parts(tokens):
            rows = torch.tensor(index, device=tokens.mask.device)
            values[rows, : part.mask.shape[1]] = spread(self._values(policy, None, part), part.mask)
        return values

    def _values(self, policy: Policy, hidden: Tensor | None, part: TokenBatch) -> Tensor:
        if policy.critic is not None:
            with self.compute.autocast():
                hidden = policy.critic(part)
        assert hidden is not None
        return policy.values(hidden)

    @torch.no_grad()
    def full_kl(self, policy: Policy, reference: Reference, tokens: TokenBatch) -> Tensor:
        """(B, T) exact KL of the next-token distributions. Both whole distributions of one part are in memory at a time."""
        kl = torch.zeros(tokens.mask.shape, device=tokens.mask.device)
        for index, part in self._parts(tokens):
            with self.compute.autocast():
                ours = policy(part)[0]
                with reference.active() as model:
                    theirs = model(part)[0]
            exact = full_kl(log_distribution(ours, self.temperature), log_distribution(theirs, self.temperature))
            kl[torch.tensor(index, device=kl.device), : part.mask.shape[1]] = spread(exact, part.mask)
        return kl

    def _parts(self, tokens: TokenBatch) -> Iterator[tuple[list[int], TokenBatch]]:
        for start in range(0, len(tokens), self.size):
            index = list(range(start, min(start + self.size, len(tokens))))
            yield index, tokens.rows(torch.tensor(index, device=tokens.mask.device))


class _TopTable:
    """Collects the likeliest tokens of the first ``recorded`` episodes, (recorded, T, 5) on the CPU."""

    def __init__(self, recorded: int, width: int):
        self._recorded, self._width = recorded, width
        self._ids: list[Tensor] = []
        self._logprobs: list[Tensor] = []

    def add(self, logits: Tensor, part: TokenBatch, first: int, temperature: float) -> None:
        mask = part.mask[: self._recorded - first]
        best = log_distribution(logits[: int(mask.sum())], temperature).topk(min(TOP, logits.shape[1]), dim=-1)
        for table, x in ((self._ids, best.indices), (self._logprobs, best.values)):
            spaced = torch.zeros((*mask.shape, x.shape[1]), dtype=x.dtype, device=x.device)
            spaced[mask] = x
            table.append(torch.nn.functional.pad(spaced, (0, 0, 0, self._width - mask.shape[1])).cpu())

    def finish(self) -> Alternatives | None:
        return Alternatives(torch.cat(self._ids), torch.cat(self._logprobs)) if self._ids else None
