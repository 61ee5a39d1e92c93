"""The processes (ranks) that train one policy together. accelerate connects them. With one rank, every method returns its input.

Every rank holds the whole batch of a step, which is small. The expensive work is divided: each rank samples its own episodes, scores
them, runs the forward passes over them, and computes its part of each minibatch's gradients; the gradients are summed over the ranks
(all_reduce). What is gathered is the same on every rank, so all ranks take the same decisions and the same optimizer step: the step
that one process alone would take.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.inputs.checks.accelerate_settings import FSDP_VARIABLE, launch_in_environment

GO, WAIT, STOP, SAVE, SNAPSHOT, CHANGE = 0, 1, 2, 3, 4, 5
"""The codes that rank 0 broadcasts before each step. SAVE and SNAPSHOT are sent only with sharded weights: gather them for a checkpoint, or
for the policy alone. After CHANGE follow the place of a setting in ``LIVE_SETTINGS`` and its new value, for the next step."""
NO_CHECKPOINT = -1  # broadcast in place of a checkpoint's step when there is no checkpoint
BUCKET = 1 << 24  # numbers per message in an all_reduce of gradients: 64 MB in float32
LONGEST_MESSAGE = 4000  # bytes of an error message that ranks send to each other


class Ranks:
    """One process alone, and the interface for several."""

    rank = 0
    size = 1
    sharded = False  # whether each rank holds only its part of the weights (FSDP), so that every forward pass needs all ranks

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes the run folder and answers people."""
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """Which of ``count`` episodes are this rank's; ``count`` is a multiple of the number of ranks."""
        each = count // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def gather(self, x: Tensor) -> Tensor:
        """The rows of all ranks, in the order of the ranks: (n, ...) to (size · n, ...). Every rank brings the same shape."""
        return x

    def all_reduce_max(self, number: float) -> float:
        """The largest of all ranks' numbers."""
        return number

    def any_has_work(self, count: int) -> bool:
        """Whether another forward pass is needed because episodes are unfinished: ``count`` of them on this rank.

        Sharded weights need all ranks in every forward pass; then unfinished episodes on any rank count.
        """
        return bool(self.all_reduce_max(count) if self.sharded else count)

    def all_reduce_sum(self, numbers: Sequence[float]) -> list[float]:
        """The sums over all ranks, in float64."""
        return list(numbers)

    def all_reduce(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its sum over all ranks, in place."""

    def broadcast(self, code: int) -> int:
        """The code of rank 0, on every rank."""
        return code

    def broadcast_number(self, number: float) -> float:
        """The number of rank 0, on every rank, in float64."""
        return number

    def raise_together(self, problem: str, kind: type[Exception]) -> None:
        """Called by all ranks after work that may have failed on one of them; ``problem`` is this rank's error message, or empty.

        When any rank has a message, each rank without one raises ``kind`` with the first message of the other ranks.
        """


ONE_RANK = Ranks()


class AccelerateRanks(Ranks):
    """Several processes, started by ``accelerate launch``.

    Args:
        accelerator: an ``accelerate.Accelerator`` in a distributed run.
        sharded: whether the weights are to be sharded over the ranks (FSDP).
    """

    def __init__(self, accelerator: Any, *, sharded: bool = False):
        self._accelerator, self.sharded = accelerator, sharded
        self.rank, self.size = accelerator.process_index, accelerator.num_processes
        self.device: torch.device = accelerator.device

    def gather(self, x: Tensor) -> Tensor:
        sent = x.to(self.device, torch.uint8 if x.dtype is torch.bool else x.dtype).contiguous()
        gathered: Tensor = self._accelerator.gather(sent)
        return gathered.to(x.device, x.dtype)

    def all_reduce_max(self, number: float) -> float:
        return float(self.gather(torch.tensor([number], dtype=torch.float64)).max())

    def all_reduce_sum(self, numbers: Sequence[float]) -> list[float]:
        return self.gather(torch.tensor([list(numbers)], dtype=torch.float64)).sum(dim=0).tolist()

    def all_reduce(self, gradients: Sequence[Tensor]) -> None:
        for group in _buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in group])
            flat = self._accelerator.reduce(flat, reduction="sum")
            for gradient, part in zip(group, flat.split([gradient.numel() for gradient in group]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def broadcast(self, code: int) -> int:
        return int(self.gather(torch.tensor([code]))[0])

    def broadcast_number(self, number: float) -> float:
        return float(self.gather(torch.tensor([number], dtype=torch.float64))[0])

    def raise_together(self, problem: str, kind: type[Exception]) -> None:
        if not self.all_reduce_max(float(bool(problem))):
            return
        message = problem.encode("utf-8", "replace")[:LONGEST_MESSAGE].ljust(LONGEST_MESSAGE)
        messages = self.gather(torch.frombuffer(bytearray(message), dtype=torch.uint8)[None])
        if not problem:
            texts = [bytes(row.tolist()).decode("utf-8", "replace").strip() for row in messages]
            raise kind(next(text for text in texts if text))


def _buckets(gradients: Sequence[Tensor]) -> list[list[Tensor]]:
    """The gradients in groups of one number format, each of at most :data:`BUCKET` numbers unless one gradient alone has more."""
    groups: list[list[Tensor]] = []
    filled = BUCKET
    for gradient in gradients:
        if filled + gradient.numel() > BUCKET or groups[-1][0].dtype is not gradient.dtype:
            groups.append([])
            filled = 0
        groups[-1].append(gradient)
        filled += gradient.numel()
    return groups


def launched_by_accelerate() -> bool:
    """Whether ``accelerate launch`` started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def join_ranks(*, cpu: bool) -> Ranks:
    """The ranks that this process belongs to: several when ``accelerate launch`` started it, else one."""
    if not launched_by_accelerate():
        return ONE_RANK
    from accelerate import Accelerator

    # With "true", transformers loads no weights on ranks other than 0, of reward models too, and expects accelerate to send them.
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    sharded = launch_in_environment(os.environ).shards
    # The FSDP setting is hidden while accelerate starts. It would prepare sharding of its own, which nothing here uses, and which in its
    # first version needs a GPU.
    fsdp_setting = os.environ.pop(FSDP_VARIABLE, None)
    try:
        return AccelerateRanks(Accelerator(cpu=cpu), sharded=sharded)
    finally:
        if fsdp_setting is not None:
            os.environ[FSDP_VARIABLE] = fsdp_setting
