"""Several processes: the first one records; what a person asks for reaches all of them at the same step."""

from __future__ import annotations

import os
import sys
from typing import Any

from rlhf_studio.attach.recording import Control


def _distributed() -> Any | None:
    """The loaded ``torch.distributed`` where processes are connected; None for a single one."""
    distributed = sys.modules.get("torch.distributed")
    return distributed if distributed is not None and distributed.is_available() and distributed.is_initialized() else None


def is_first_process() -> bool:
    """Whether this process is rank 0, or the only one."""
    distributed = _distributed()
    return bool(distributed.get_rank() == 0) if distributed is not None else os.environ.get("RANK", "0") == "0"


class Ranks:
    """Agrees on the step at which all processes carry out a request, by the key-value store that connected them: no collective, no GPU.

    Rank 0 writes "at the end of step s + 1" at the end of step s. No process ends step s + 1 before rank 0 has begun it, because its
    gradients are averaged over all; so every process reads the request in time.

    Args:
        training: how many trainings this Studio has watched before, the same in every process: keys of an earlier one do not count.
    """

    def __init__(self, training: int):
        distributed = _distributed()
        self.several = distributed is not None and distributed.get_world_size() > 1
        self._prefix, self._taken = f"rlhf_studio/{training}", {"stop": 0, "checkpoint": 0}
        if self.several and distributed is not None:
            self._others = distributed.get_world_size() - 1
            self._store = distributed.distributed_c10d._get_default_store()

    def follow(self) -> None:
        """Say that this process listens; all but the first do."""
        if self.several:
            self._store.add(f"{self._prefix}/listening", 1)

    def all_listen(self) -> bool:
        """Whether every process has a Studio. One that has none would train on alone, and the others would wait for it for ever."""
        return not self.several or self._store.add(f"{self._prefix}/listening", 0) >= self._others

    def tell(self, control: Control, step: int) -> None:
        """Ask all processes to carry it out at the end of ``step``."""
        self._store.set(self._key(control), str(step))

    def due(self, control: Control, step: int) -> bool:
        """Whether it is to be carried out at the end of ``step``, once."""
        if not self._store.check([self._key(control)]) or int(self._store.get(self._key(control))) > step:
            return False
        self._taken[control] += 1
        return True

    def told(self, control: Control) -> bool:
        """Whether a request is on its way."""
        return bool(self._store.check([self._key(control)]))

    def _key(self, control: Control) -> str:
        return f"{self._prefix}/{control}/{self._taken[control]}"
