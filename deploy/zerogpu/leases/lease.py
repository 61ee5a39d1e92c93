"""One lease of a GPU: what is asked for, and what comes back. Both cross between two processes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rlhf_studio.config import NOTHING_ALLOWED, Permissions
from rlhf_studio.runs.records import StartMode

SHORTEST, LONGEST = 60, 100
"""Seconds that a lease is asked for. Longer ones wait longer for a GPU, and are refused when less of a day's quota is left; on some
GPUs each second counts for one and a half."""
RESERVE = 5.0
"""Seconds of a lease that are left over, for what nobody has measured: CUDA's start, the end of the process."""
SLOWER = 1.25
"""A step may take this much longer than the longest so far."""


@dataclass(frozen=True)
class Pace:
    """How long the parts of a run's leases took, in seconds; 0 for what is not known yet.

    Attributes:
        load: from the beginning of a lease to its first step.
        step: the longest step of the newest lease that had one.
        save: from the end of the last step to the end of its checkpoint.
    """

    load: float = 0.0
    step: float = 0.0
    save: float = 0.0

    def seconds(self, steps: int, *, tried: bool) -> int:
        """How long a lease to ask for, in seconds, when so many steps are left. ``tried``: the run had a lease before; when no step fitted
        in it, it was too short."""
        if not self.step:
            return LONGEST if tried else SHORTEST
        seconds_needed = self.load + steps * SLOWER * self.step + self.save + RESERVE
        return max(SHORTEST, min(LONGEST, math.ceil(seconds_needed)))

    def one_step(self) -> float:
        """Seconds of a lease with a single step."""
        return self.load + SLOWER * self.step + self.save + RESERVE

    def then(self, newer: Pace) -> Pace:
        """With what a newer lease has measured."""
        return replace(self, **{name: value for name, value in vars(newer).items() if value})


@dataclass(frozen=True)
class Lease:
    """What a worker is to do. ``seconds`` is how long it may take, from its beginning."""

    run_dir: str
    mode: StartMode
    seconds: int
    pace: Pace = Pace()
    permissions: Permissions = NOTHING_ALLOWED
    keep_hub_token: bool = False


@dataclass(frozen=True)
class LeaseEnd:
    """What a worker has done.

    Attributes:
        over: the lease ended before the run did; the run has a checkpoint. Otherwise the run has ended, and its folder says how.
        paused: somebody had paused the run.
        steps: how many steps were trained.
        problem: why nothing was done; empty when something was.
    """

    over: bool = False
    paused: bool = False
    steps: int = 0
    pace: Pace = Pace()
    problem: str = ""
