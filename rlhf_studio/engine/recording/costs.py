"""What a step costs: seconds per phase, memory, speed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.types import Rollout


class Costs:
    """Adds up the seconds of each phase of one step: ``with costs("update"): ...``."""

    def __init__(self, compute: Compute):
        self._compute = compute
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
            self._compute.synchronise()
        finally:  # a scoring that failed took its time too
            self._seconds[phase] = self._seconds.get(phase, 0.0) + time.perf_counter() - started

    @property
    def total(self) -> float:
        """Seconds so far."""
        return sum(self._seconds.values())

    def metrics(self, elapsed: float, episodes: int, rollout: Rollout | None) -> dict[str, float]:
        """Seconds, bytes and, when there was a rollout that was sampled here, speed.

        Args:
            elapsed: seconds of all steps of the run, this one included.
            episodes: of the whole run so far.
        """
        costs = {f"time/{phase}": seconds for phase, seconds in self._seconds.items()} | {
            "time/total": self.total,
            "time/elapsed": elapsed,
            "episode": float(episodes),
            "memory/peak": self._compute.peak_memory(),
        }
        if rollout is not None and "rollout" in self._seconds:
            costs["speed/episodes_per_second"] = len(rollout.tokens) / self.total
            costs["speed/tokens_per_second"] = float(rollout.tokens.mask.sum()) / self.total
        return costs
