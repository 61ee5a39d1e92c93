"""The stream of prompt batches: tokenised once, shuffled per pass by the seed, resumable at any step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import DataConfig
from rlhf_studio.engine.text import cut_left


@dataclass(frozen=True)
class PromptBatch:
    """B prompts, left-padded: ids (B, P) int64, mask (B, P) bool, their texts, and their reference texts when the data has any."""

    ids: Tensor
    mask: Tensor
    texts: list[str]
    references: list[str] | None = None


def tokenize_prompts(texts: list[str], tokenizer: PreTrainedTokenizerBase, settings: DataConfig) -> list[list[int]]:
    """Token ids of each prompt, cut on the left to ``max_prompt_tokens``.

    An empty prompt becomes the beginning-of-text (or end-of-text) token, since a model needs one position to predict from.
    """
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    rows = tokenizer(texts, truncation=False, verbose=False)["input_ids"]
    return [cut_left(row, settings.max_prompt_tokens, tokenizer) or [start if start is not None else 0] for row in rows]


def pad_left(rows: list[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Rows of unequal length to (ids, mask), each (B, P), padded on the left."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows])
    return ids, mask


class PromptStream:
    """Endless batches over the prompts. A set smaller than a batch repeats; each pass has a new order.

    The state is two numbers: the pass and the place in it. The order of pass k depends on the seed and k alone.
    """

    def __init__(
        self,
        texts: list[str],
        ids: list[list[int]],
        references: list[str] | None = None,
        *,
        pad_id: int,
        shuffle: bool,
        seed: int,
    ):
        if not texts:
            raise ValueError("there are no prompts to draw from")
        self._texts, self._ids, self._references, self._pad_id = texts, ids, references, pad_id
        self._shuffle, self._seed = shuffle, seed
        self._pass, self._place = 0, 0
        self._order = self._order_of(0)

    def next_batch(self, size: int) -> PromptBatch:
        """The next ``size`` prompts."""
        rows: list[int] = []
        while len(rows) < size:
            if self._place >= len(self._order):  # beyond the end only when a resumed run finds fewer prompts than before
                self._pass, self._place = self._pass + 1, 0
                self._order = self._order_of(self._pass)
            taken = self._order[self._place : self._place + size - len(rows)]
            rows += taken
            self._place += len(taken)
        return self.batch(rows)

    def batch(self, rows: list[int]) -> PromptBatch:
        """The prompts with these row numbers."""
        ids, mask = pad_left([self._ids[row] for row in rows], self._pad_id)
        references = None if self._references is None else [self._references[row] for row in rows]
        return PromptBatch(ids, mask, [self._texts[row] for row in rows], references)

    def watched_rows(self, count: int) -> list[int]:
        """Row numbers spread evenly over the prompts, the same in every run on this data."""
        count = min(count, len(self._texts))
        return [index * len(self._texts) // count for index in range(count)] if count else []

    def state(self) -> dict[str, Any]:
        return {"pass": self._pass, "place": self._place}

    def restore(self, state: dict[str, Any]) -> None:
        self._pass, self._place = int(state["pass"]), int(state["place"])
        self._order = self._order_of(self._pass)

    def _order_of(self, number: int) -> list[int]:
        if not self._shuffle:
            return list(range(len(self._texts)))
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + number) % 2**63)
        return torch.randperm(len(self._texts), generator=generator).tolist()
