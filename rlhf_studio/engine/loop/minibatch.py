"""The gradient of one minibatch, however it is computed: cut into micro-batches, divided among lanes and ranks, packed or padded.

The update loop knows only :meth:`MinibatchGradients.backward`; the result is the same for every way of cutting, up to rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.fused import consume_logits
from rlhf_studio.engine.compute.gradients import add_gradients
from rlhf_studio.engine.compute.lanes import balanced_parts, rows_worth_a_lane
from rlhf_studio.engine.compute.sharding import is_sharded
from rlhf_studio.engine.models.policy import Policy, to_padded
from rlhf_studio.engine.types import MinibatchStats, Rollout, TokenBatch
from rlhf_studio.ppo.diagnostics import UpdateSums
from rlhf_studio.ppo.masking import masked_select
from rlhf_studio.ppo.objective import NewPass, ObjectiveSettings, ppo_objective


@dataclass(frozen=True)
class MinibatchResult(MinibatchStats):
    """What is known of a minibatch after its backward pass; but for ``parts`` the same on all ranks.

    Attributes:
        largest_log_ratio: largest |new_logprob − logprob| of a token.
        broken_episode: number of the first episode with a number that is not finite; -1 for none.
    """

    largest_log_ratio: float
    broken_episode: int


@dataclass(frozen=True)
class _Task:
    """What all micro-batches of a minibatch have in common; ``divisor`` is what the whole minibatch's loss is divided by."""

    rollout: Rollout
    divisor: int
    objective: ObjectiveSettings
    detach_trunk: bool


@dataclass(frozen=True)
class _Done:
    """A micro-batch that was worked off.

    Attributes:
        rows: (b,) numbers of its episodes.
        new_logprobs, new_values: (b, t); no values without a critic.
        numbers: those of :class:`UpdateSums`, the largest change of a log-probability, and the first broken episode (-1: none).
    """

    rows: Tensor
    new_logprobs: Tensor
    new_values: Tensor | None
    numbers: list[float]


class MinibatchGradients:
    """Computes gradients of minibatches into the ``grad`` of ``parameters``.

    Attributes:
        temperature: the sampling temperature, by which logits are divided.
    """

    def __init__(self, policy: Policy, parameters: list[torch.nn.Parameter], compute: Compute, micro_batch_size: int, temperature: float):
        self._policy, self.parameters, self._compute = policy, parameters, compute
        self._micro_batch_size, self.temperature = micro_batch_size, temperature
        self._least_rows = rows_worth_a_lane(policy, parameters)

    def present(self) -> list[Tensor]:
        """The gradients there are after :meth:`backward`."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def backward(self, rollout: Rollout, rows: Tensor, objective: ObjectiveSettings, *, detach_trunk: bool = False) -> MinibatchResult:
        """Add the gradient of the objective, averaged over the tokens or responses of ``rows`` as it says; summed over all ranks.

        Args:
            rows: (b,) int64 numbers of the minibatch's episodes.
            detach_trunk: the values send no gradient into a trunk that policy and critic share.
        """
        ranks, task = self._compute.ranks, _Task(rollout, objective.divisor(rollout.mask[rows]), objective, detach_trunk)
        parts = self._micro_batches(rollout.tokens, rows[ranks.rows(len(rows))])
        done = add_gradients(self._compute.lanes, self.parameters, parts, lambda rows: self._work_off(task, rows))
        *columns, largest, broken = zip(*(micro_batch.numbers for micro_batch in done), strict=True)
        first_broken = next((int(episode) for episode in broken if episode >= 0), -1)
        ranks.all_reduce([gradient for gradient in self.present() if not is_sharded(gradient)])  # FSDP has reduced those that are split
        sums = UpdateSums(*ranks.all_reduce_sum([sum(column) for column in columns]))
        parts_done = [(micro_batch.rows, micro_batch.new_logprobs, micro_batch.new_values) for micro_batch in done]
        return MinibatchResult(sums, parts_done, ranks.all_reduce_max(max(largest)), int(ranks.all_reduce_max(first_broken)))

    def _micro_batches(self, tokens: TokenBatch, rows: Tensor) -> list[Tensor]:
        """The episodes' numbers in micro-batches, divided among the lanes."""
        size = self._compute.lanes.rows_per_part(len(rows), self._micro_batch_size, self._least_rows)
        lengths = tokens.whole_lengths[rows]
        rows = rows[lengths.argsort(stable=True)]
        if not self._policy.packs:  # a padded micro-batch is as wide as its longest episode: similar lengths together
            return list(rows.split(size))
        return [rows.new_tensor(part) for part in balanced_parts(rows.tolist(), math.ceil(len(rows) / size))]

    def _work_off(self, task: _Task, rows: Tensor) -> tuple[Tensor, _Done]:
        """The loss of one micro-batch, and what is known of it."""
        tokens = task.rollout.tokens.rows(rows)
        batch = task.rollout.minibatch(rows, tokens.mask)
        with self._compute.autocast():
            logits, values = self._policy.logits_and_values(tokens, detach_trunk=task.detach_trunk)
        logprobs, entropy = consume_logits(logits, tokens.response_ids[tokens.mask], self.temperature)
        padded_values = None if values is None else to_padded(values, tokens.mask)
        new = NewPass(to_padded(logprobs, tokens.mask), padded_values, to_padded(entropy, tokens.mask))
        loss, sums = ppo_objective(batch, new, task.objective)
        with torch.no_grad():
            change = masked_select(new.logprobs - batch.logprobs, batch.mask)
            finite = torch.isfinite(new.logprobs) & torch.isfinite(change.exp())
            finite = (finite if new.values is None else finite & torch.isfinite(new.values)) | ~batch.mask
            broken = torch.where(finite.all(), -1, rows[finite.all(dim=1).to(torch.int8).argmin()])
            numbers = [*map(torch.as_tensor, sums), change.abs().max(), broken]
            fetched = torch.stack([number.double() for number in numbers]).tolist()  # one wait for the device, not twelve
        return loss / task.divisor, _Done(rows, new.logprobs.detach(), None if new.values is None else new.values.detach(), fetched)
