"""What a reward component may look at, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.inputs.chat import Messages


@dataclass(frozen=True)
class Episodes:
    """B prompts with their responses, and what is known of them.

    Attributes:
        prompts, responses: the texts.
        stopped: whether each response ended with its stop token.
        lengths: of each response, in tokens.
        references: a text per row to compare with, where the data have them.
        chats: the conversations from which the prompts were written, where the data are chats; the response comes next.
    """

    prompts: list[str]
    responses: list[str]
    stopped: list[bool]
    lengths: list[int]
    references: list[str] | None = None
    chats: list[Messages] | None = None

    def required_references(self) -> list[str]:
        """The reference texts (B), for components that compare with them. Raises :class:`ComponentError` when the data have none."""
        if self.references is None:
            raise ComponentError("there are no reference texts to compare with; name their column in data.reference_column")
        return self.references

    def copied(self) -> Episodes:
        """The same in lists of its own: whoever changes these changes nothing of the run."""
        references = None if self.references is None else list(self.references)
        chats = None if self.chats is None else [[dict(message) for message in chat] for chat in self.chats]
        return Episodes(list(self.prompts), list(self.responses), list(self.stopped), list(self.lengths), references, chats)

    def rows(self, part: slice) -> Episodes:
        """Some of the episodes."""
        references, chats = (None if column is None else column[part] for column in (self.references, self.chats))
        return Episodes(self.prompts[part], self.responses[part], self.stopped[part], self.lengths[part], references, chats)


@dataclass(frozen=True)
class Answer:
    """The scores that one component gives to B episodes, before its weight.

    Attributes:
        scores: (B,) float32 on the CPU.
        members: (B,) of each model of an ensemble by name; empty for all else.
    """

    scores: Tensor
    members: dict[str, Tensor] = field(default_factory=dict)


Source = Callable[[Episodes], Answer]
"""A component at work. Raises :class:`ComponentError`."""
