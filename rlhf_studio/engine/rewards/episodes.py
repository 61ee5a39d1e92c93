"""What a reward component may look at, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Episodes:
    """B texts, whether each ended with its stop token, its length in tokens, and the reference texts where the data have them."""

    prompts: list[str]
    responses: list[str]
    stopped: list[bool]
    lengths: list[int]
    references: list[str] | None = None

    def rows(self, part: slice) -> Episodes:
        """Some of the episodes."""
        references = None if self.references is None else self.references[part]
        return Episodes(self.prompts[part], self.responses[part], self.stopped[part], self.lengths[part], references)


@dataclass(frozen=True)
class Answer:
    """What one component says about B episodes, before its weight.

    Attributes:
        scores: (B,) float32 on the CPU.
        members: (B,) of each model of an ensemble by name; empty for all else.
    """

    scores: Tensor
    members: dict[str, Tensor] = field(default_factory=dict)


Source = Callable[[Episodes], Answer]
"""A component at work. Raises :class:`ComponentError`."""
