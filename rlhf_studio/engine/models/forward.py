"""What a model says about responses that are already there: one forward pass, in parts of a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.fused import consume_logits
from rlhf_studio.engine.models.policy import Policy, Reference, ResponseModel, spread
from rlhf_studio.engine.types import Alternatives, ForwardOutput, TokenBatch
from rlhf_studio.ppo.kl import full_kl
from rlhf_studio.ppo.logprobs import log_distribution

TOP = 5


@dataclass(frozen=True)
class ForwardPass:
    """Reads batches in parts of ``size`` episodes, so that logits for all of them need not fit into memory."""

    compute: Compute
    temperature: float
    size: int

    @torch.no_grad()
    def read(self, model: ResponseModel, tokens: TokenBatch, recorded: int, *, critic: Policy | None = None) -> ForwardOutput:
        """Log-probabilities and the recorded episodes' likeliest tokens; with ``critic`` also entropy and values.

        ``critic`` is the policy itself: the hidden states that its value head reads are those of this pass.
        """
        logprobs, entropy, values = (torch.zeros(tokens.mask.shape, device=tokens.mask.device) for _ in range(3))

        def read_part(index: Tensor) -> Alternatives | None:
            part = tokens.rows(index)
            width = part.mask.shape[1]
            with self.compute.autocast():
                logits, hidden = model(part)
            top = self._top(logits, part, recorded - int(index[0]), tokens.mask.shape[1])
            chosen = consume_logits(logits, part.response_ids[part.mask], self.temperature, with_entropy=critic is not None)
            logprobs[index, :width] = spread(chosen[0], part.mask)
            if critic is not None:
                entropy[index, :width] = spread(chosen[1], part.mask)
                values[index, :width] = spread(self._values(critic, hidden, part), part.mask)
            return top

        tops = [top for top in self.compute.lanes.map(read_part, self._parts(tokens)) if top is not None]
        return ForwardOutput(logprobs, entropy, values, Alternatives.cat(tops))

    @torch.no_grad()
    def values(self, policy: Policy, tokens: TokenBatch) -> Tensor:
        """(B, T) values of a critic that has its own trunk."""
        values = torch.zeros(tokens.mask.shape, device=tokens.mask.device)

        def read_part(index: Tensor) -> None:
            part = tokens.rows(index)
            values[index, : part.mask.shape[1]] = spread(self._values(policy, None, part), part.mask)

        self.compute.lanes.map(read_part, self._parts(tokens))
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
        for index in self._parts(tokens):
            part = tokens.rows(index)
            with self.compute.autocast():
                ours = policy(part)[0]
                with reference.active() as model:
                    theirs = model(part)[0]
            exact = full_kl(log_distribution(ours, self.temperature), log_distribution(theirs, self.temperature))
            kl[index, : part.mask.shape[1]] = spread(exact, part.mask)
        return kl

    def _parts(self, tokens: TokenBatch) -> tuple[Tensor, ...]:
        """Row numbers of the parts, in order."""
        size = self.compute.lanes.share(len(tokens), self.size)
        return torch.arange(len(tokens), device=tokens.mask.device).split(size)

    def _top(self, logits: Tensor, part: TokenBatch, recorded: int, width: int) -> Alternatives | None:
        """The likeliest tokens of the first ``recorded`` episodes of a part, (recorded, width, 5) on the CPU; None when there are none."""
        if recorded <= 0:
            return None
        mask = part.mask[:recorded]
        best = log_distribution(logits[: int(mask.sum())], self.temperature).topk(min(TOP, logits.shape[1]), dim=-1)
        spaced = [torch.zeros((*mask.shape, x.shape[1]), dtype=x.dtype, device=x.device).index_put((mask,), x) for x in best]
        logprobs, ids = (x.cpu() for x in spaced)
        return Alternatives(ids, logprobs).widened(width)
