"""How far a run has got."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_studio.runs.records import ENDED
from rlhf_studio.runs.visitors.starters import NOBODY, Starter

Key = tuple[int, int, bool]
"""What an analysis of a run depends on: epoch, step, and whether the run has ended."""


@dataclass(frozen=True)
class Progress:
    """How far a run has got: its epoch, its newest step and its state; and who started it."""

    epoch: int
    step: int
    state: str
    starter: Starter = NOBODY

    @property
    def ended(self) -> bool:
        """Whether no more steps come for now."""
        return self.state in ENDED

    @property
    def key(self) -> Key:
        """What an analysis at this moment depends on."""
        return self.epoch, self.step, self.ended
