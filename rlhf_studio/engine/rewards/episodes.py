"""What a reward component may look at, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.inputs.chat import Messages
from rlhf_studio.language import S_


@dataclass(frozen=True)
class Episodes:
    """B prompts with their responses, and what is known of them.

    Attributes:
        prompts, responses: the texts.
        stopped: whether each response ended with its stop token.
        lengths: of each response, in tokens.
        references: a text per row to compare with, where the data have them.
        chats: the conversations from which the prompts were written, where the data are chats; the response comes next.
        pieces: the text of each token of each response; None where only texts are scored.
        logprobs: the policy's log-probability of each of these tokens, at the sampling temperature.
    """

    prompts: list[str]
    responses: list[str]
    stopped: list[bool]
    lengths: list[int]
    references: list[str] | None = None
    chats: list[Messages] | None = None
    pieces: list[list[str]] | None = None
    logprobs: list[list[float]] | None = None

    def required_references(self) -> list[str]:
        """The reference texts (B), for components that compare with them. Raises :class:`ComponentError` when the data have none."""
        if self.references is None:
            raise ComponentError("there are no reference texts to compare with; name their column in data.reference_column")
        return self.references

    def copied(self) -> Episodes:
        """A copy with lists of its own: a change to them changes nothing of the run."""
        references = None if self.references is None else list(self.references)
        chats = None if self.chats is None else [[dict(message) for message in chat] for chat in self.chats]
        pieces = None if self.pieces is None else [list(row) for row in self.pieces]
        logprobs = None if self.logprobs is None else [list(row) for row in self.logprobs]
        prompts, responses = list(self.prompts), list(self.responses)
        return Episodes(prompts, responses, list(self.stopped), list(self.lengths), references, chats, pieces, logprobs)

    def rows(self, part: slice) -> Episodes:
        """Some of the episodes."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: rows[part] for name, rows in values.items() if rows is not None})


@dataclass(frozen=True)
class Answer:
    """The scores that one component gives to B episodes, before its weight.

    Attributes:
        scores: (B,) float32 on the CPU.
        early: (B, T) float32, what of that each token before the last earns; 0 elsewhere. None for components that score whole responses.
        members: (B,) of each model of an ensemble by name; empty for all else.
        reading: (B, 2) int64, how many tokens of each text were read, and how many it has: where the first number is smaller, the text
            lost its beginning. None for components that read every text whole.
    """

    scores: Tensor
    members: dict[str, Tensor] = field(default_factory=dict)
    reading: Tensor | None = None
    early: Tensor | None = None


def worst_reading(readings: Iterable[Tensor | None]) -> Tensor | None:
    """For each episode, of several readings (B, 2), the one that lost most tokens; None where all readers read their texts in full."""
    known = [reading for reading in readings if reading is not None]
    if not known:
        return None
    several = torch.stack(known)  # (readers, B, 2)
    lost = several[..., 1] - several[..., 0]
    return several[lost.argmax(dim=0), torch.arange(several.shape[1])]


def reading_note(reading: Tensor | None, who: str) -> str:
    """A sentence for a single text that lost its beginning, as ``reading`` (1, 2) says; empty when it did not."""
    read, total = (0, 0) if reading is None else reading[0].tolist()
    return S_(f"{who} read only the last {read:,} of the text's {total:,} tokens: its beginning was cut off.") if read < total else ""


def cut_share(reading: Tensor | None) -> float:
    """The share of texts that lost their beginning, from ``reading`` (B, 2); 0 for None, when all texts were read in full."""
    return 0.0 if reading is None else float((reading[:, 0] < reading[:, 1]).float().mean())


Source = Callable[[Episodes], Answer]
"""A component at work. Raises :class:`ComponentError`."""
