"""The processes that train one policy together. accelerate connects them; alone, every method is the identity.

Every process holds the whole batch of a step, which is small, and does its share of the expensive work: it plays, scores and
reads its own episodes, and adds up the gradients of its own part of each minibatch. What is gathered is the same everywhere, so
that every process takes the same decisions and the same optimizer step; and the same as one process alone would.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from rlhf_studio.inputs.launcher import FSDP_VARIABLE, launch_in_environment

GO, WAIT, STOP, SAVE = 0, 1, 2, 3
NO_CHECKPOINT = -1  # where a step is shared
"""What the first process tells the others before each step. SAVE: put the weights together with it; only where they are sharded."""
BUCKET = 1 << 24  # numbers per message when gradients are added up: 64 MB
LONGEST_MESSAGE = 4000


class Team:
    """One process alone, and the interface for several."""

    rank = 0
    size = 1
    sharded = False  # whether each process holds only its part of the weights, so that every forward pass needs everyone

    @property
    def is_main(self) -> bool:
        """Whether this process writes the run folder and answers people."""
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """This process's share of ``count`` episodes. ``count`` is a multiple of the number of processes."""
        share = count // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def gather(self, x: Tensor) -> Tensor:
        """Everyone's rows, in order of the processes: (n, ...) to (size · n, ...)."""
        return x

    def most(self, number: float) -> float:
        """The largest of everyone's numbers."""
        return number

    def goes_on(self, count: int) -> bool:
        """Whether there is work left for a forward pass: this process's own, or, where weights are sharded, anybody's."""
        return bool(self.most(count) if self.sharded else count)

    def total(self, numbers: Sequence[float]) -> list[float]:
        """The sums over all processes, in float64."""
        return list(numbers)

    def add_up(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by the sum over all processes, in place."""

    def share(self, code: int) -> int:
        """What the first process says, for everyone."""
        return code

    def fail_together(self, problem: str, kind: type[Exception]) -> None:
        """Everyone calls this after work that may fail in one process; where only others failed, raises ``kind`` with their words."""

    def wait(self) -> None:
        """Until everyone is here."""


ALONE = Team()


class Processes(Team):
    """Several processes, started by ``accelerate launch``.

    Args:
        accelerator: an ``accelerate.Accelerator`` in a distributed run.
        sharded: whether the weights are to be split over the processes.
    """

    def __init__(self, accelerator: object, *, sharded: bool = False):
        self._accelerator, self.sharded = accelerator, sharded
        self.rank, self.size = accelerator.process_index, accelerator.num_processes  # type: ignore[attr-defined]
        self.device: torch.device = accelerator.device  # type: ignore[attr-defined]

    def gather(self, x: Tensor) -> Tensor:
        sent = x.to(self.device, torch.uint8 if x.dtype is torch.bool else x.dtype).contiguous()
        return self._accelerator.gather(sent).to(x.device, x.dtype)  # type: ignore[attr-defined]

    def most(self, number: float) -> float:
        return float(self.gather(torch.tensor([number], dtype=torch.float64)).max())

    def total(self, numbers: Sequence[float]) -> list[float]:
        return self.gather(torch.tensor([list(numbers)], dtype=torch.float64)).sum(dim=0).tolist()

    def add_up(self, gradients: Sequence[Tensor]) -> None:
        for group in _buckets(gradients):
            flat = torch.cat([gradient.flatten() for gradient in group])
            flat = self._accelerator.reduce(flat, reduction="sum")  # type: ignore[attr-defined]
            for gradient, part in zip(group, flat.split([gradient.numel() for gradient in group]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def share(self, code: int) -> int:
        return int(self.gather(torch.tensor([code]))[0])

    def fail_together(self, problem: str, kind: type[Exception]) -> None:
        if not self.most(float(bool(problem))):
            return
        message = problem.encode("utf-8", "replace")[:LONGEST_MESSAGE].ljust(LONGEST_MESSAGE)
        everyone = self.gather(torch.frombuffer(bytearray(message), dtype=torch.uint8)[None])
        if not problem:
            texts = [bytes(row.tolist()).decode("utf-8", "replace").strip() for row in everyone]
            raise kind(next(text for text in texts if text))

    def wait(self) -> None:
        self._accelerator.wait_for_everyone()  # type: ignore[attr-defined]


def _buckets(gradients: Sequence[Tensor]) -> list[list[Tensor]]:
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
    """Whether this process is one of several that were started together."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def join(*, cpu: bool) -> Team:
    """The team that this process was started in: several when a launcher says so, else alone."""
    if not launched_by_accelerate():
        return ALONE
    from accelerate import Accelerator

    # transformers would leave every model (reward models too) empty in all processes but the first, for accelerate to fill.
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
    sharded = launch_in_environment(os.environ).shards
    # accelerate is not told: it would prepare its own way of sharding, the first version of which wants a GPU, and nothing would use it.
    asked = os.environ.pop(FSDP_VARIABLE, None)
    try:
        return Processes(Accelerator(cpu=cpu), sharded=sharded)
    finally:
        if asked is not None:
            os.environ[FSDP_VARIABLE] = asked
