"""What a reward component may look at, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from rlhf_studio.inputs.chat import Messages


@dataclass(frozen=True)
class Episodes:
    """B texts, whether each ended with its stop token, its length in tokens, and where the data have them reference texts and chats.

    ``chats`` are the conversations that the prompts were written from, ending where the response follows.
    """

    prompts: list[str]
    responses: list[str]
    stopped: list[bool]
    lengths: list[int]
    references: list[str] | None = None
    chats: list[Messages] | None = None

    def rows(self, part: slice) -> Episodes:
        """Some of the episodes."""
        references, chats = (None if column is None else column[part] for column in (self.references, self.chats))
        return Episodes(self.prompts[part], self.responses[part], self.stopped[part], self.lengths[part], references, chats)


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
