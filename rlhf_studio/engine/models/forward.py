"""Log-probabilities, entropy and values of responses that have been sampled: one forward pass, in micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.fused import consume_logits
from rlhf_studio.engine.compute.lanes import LEAST_ROWS
from rlhf_studio.engine.models.policy import Policy, ResponseModel, to_padded
from rlhf_studio.engine.models.reference import Reference
from rlhf_studio.engine.types import Alternatives, ForwardOutput, TokenBatch
from rlhf_studio.ppo.kl import full_kl
from rlhf_studio.ppo.logprobs import log_distribution

Result = TypeVar("Result")

TOP_K = 5  # likeliest tokens that are kept at each position


@dataclass(frozen=True)
class ForwardPass:
    """Forward passes without gradients, in micro-batches: the logits of a whole batch need not fit into memory.

    Attributes:
        compute: where the passes run, and in which lanes.
        temperature: the sampling temperature, by which logits are divided.
        micro_batch_size: most episodes whose logits exist at one time.
        least_rows: episodes that are worth a lane of their own.
    """

    compute: Compute
    temperature: float
    micro_batch_size: int
    least_rows: int = LEAST_ROWS

    @torch.no_grad()
    def run(self, model: ResponseModel, tokens: TokenBatch, top_rows: int, *, critic: Policy | None = None) -> ForwardOutput:
        """Log-probabilities, and the likeliest tokens of the first ``top_rows`` episodes; with ``critic`` also entropy and values.

        ``critic`` is given only when ``model`` is the policy, and is that policy: its value head uses the hidden states of this pass.
        Where it has no critic there are no values.
        """
        logprobs, entropy = (torch.zeros(tokens.mask.shape, device=tokens.mask.device) for _ in range(2))
        values = torch.zeros_like(logprobs) if critic is not None and critic.has_critic else None

        def micro_batch(index: Tensor) -> Alternatives | None:
            batch = tokens.rows(index)
            width = batch.mask.shape[1]
            with self.compute.autocast():
                logits, hidden = model(batch)
            top = self._top(logits, batch, top_rows - int(index[0]), tokens.mask.shape[1])
            chosen = consume_logits(logits, batch.response_ids[batch.mask], self.temperature, with_entropy=critic is not None)
            logprobs[index, :width] = to_padded(chosen[0], batch.mask)
            if critic is not None:
                entropy[index, :width] = to_padded(chosen[1], batch.mask)
            if critic is not None and values is not None:
                values[index, :width] = to_padded(self._values(critic, hidden, batch), batch.mask)
            return top

        tops = [top for top in self.compute.lanes.map(micro_batch, self._micro_batches(tokens)) if top is not None]
        return ForwardOutput(logprobs, entropy, values, Alternatives.cat(tops))

    @torch.no_grad()
    def read_distributions(self, model: ResponseModel, tokens: TokenBatch, read: Callable[[Tensor, Tensor], Result]) -> list[Result]:
        """The results of ``read`` for each micro-batch, in order. The distributions of one micro-batch are in memory at a time.

        ``read`` takes the log-probabilities (n, V), float32, of the whole vocabulary at n response tokens, and the numbers (n,) of these
        tokens among all response tokens, in the order of ``tokens.mask``.
        """
        indices = torch.arange(int(tokens.mask.sum()), device=tokens.mask.device).split(tokens.lengths.tolist())

        def micro_batch(index: Tensor) -> Result:
            with self.compute.autocast():
                logits, _ = model(tokens.rows(index))
            return read(log_distribution(logits, self.temperature), torch.cat([indices[row] for row in index.tolist()]))

        return self.compute.lanes.map(micro_batch, self._micro_batches(tokens))

    @torch.no_grad()
    def values(self, policy: Policy, tokens: TokenBatch) -> Tensor:
        """(B, T) values of a policy whose critic has its own trunk."""
        values = torch.zeros(tokens.mask.shape, device=tokens.mask.device)

        def micro_batch(index: Tensor) -> None:
            batch = tokens.rows(index)
            values[index, : batch.mask.shape[1]] = to_padded(self._values(policy, None, batch), batch.mask)

        self.compute.lanes.map(micro_batch, self._micro_batches(tokens))
        return values

    def _values(self, policy: Policy, hidden: Tensor | None, batch: TokenBatch) -> Tensor:
        """(N,) values of the N response tokens; ``hidden`` (N, H) of the policy's pass is used unless the critic has its own trunk."""
        if policy.critic is not None:
            with self.compute.autocast():
                hidden = policy.critic(batch)
        assert hidden is not None
        return policy.values(hidden)

    @torch.no_grad()
    def full_kl(self, policy: Policy, reference: Reference, tokens: TokenBatch) -> Tensor:
        """(B, T) exact KL of the next-token distributions, policy against reference.

        The full distributions (N, V) of both models are in memory for one micro-batch at a time.
        """
        kl = torch.zeros(tokens.mask.shape, device=tokens.mask.device)
        for index in self._micro_batches(tokens):
            batch = tokens.rows(index)
            with self.compute.autocast():
                policy_logits = policy(batch)[0]
                with reference.active() as model:
                    reference_logits = model(batch)[0]
            exact = full_kl(log_distribution(policy_logits, self.temperature), log_distribution(reference_logits, self.temperature))
            kl[index, : batch.mask.shape[1]] = to_padded(exact, batch.mask)
        return kl

    def _micro_batches(self, tokens: TokenBatch) -> tuple[Tensor, ...]:
        """Row numbers of each micro-batch, in order."""
        size = self.compute.lanes.rows_per_part(len(tokens), self.micro_batch_size, self.least_rows)
        return tuple(torch.arange(len(tokens), device=tokens.mask.device).split(size))

    def _top(self, logits: Tensor, batch: TokenBatch, top_rows: int, width: int) -> Alternatives | None:
        """The likeliest tokens of a micro-batch's first ``top_rows`` episodes: (top_rows, width, 5) on the CPU. None for no episode."""
        if top_rows <= 0:
            return None
        mask = batch.mask[:top_rows]
        best = log_distribution(logits[: int(mask.sum())], self.temperature).topk(min(TOP_K, logits.shape[1]), dim=-1)
        padded = [torch.zeros((*mask.shape, x.shape[1]), dtype=x.dtype, device=x.device).index_put((mask,), x) for x in best]
        logprobs, ids = (x.cpu() for x in padded)
        return Alternatives(ids, logprobs).widened(width)
