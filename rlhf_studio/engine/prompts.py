"""The stream of prompt batches: tokenised once, shuffled per pass by the seed, resumable at any step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.loading import Report
from rlhf_studio.engine.text import start_tokens
from rlhf_studio.inputs.chat import ChatTemplate, Messages
from rlhf_studio.inputs.prompts.prepare import Prepared, prepare
from rlhf_studio.inputs.prompts.read import Prompts, nothing_left


@dataclass(frozen=True)
class PromptBatch:
    """B prompts, left-padded: ids (B, P) int64, mask (B, P) bool, their texts, and reference texts and conversations when there are any."""

    ids: Tensor
    mask: Tensor
    texts: list[str]
    references: list[str] | None = None
    chats: list[Messages] | None = None

    def rows(self, part: slice) -> PromptBatch:
        """Some of the prompts, as wide as all of them."""
        references, chats = (None if column is None else column[part] for column in (self.references, self.chats))
        return PromptBatch(self.ids[part], self.mask[part], self.texts[part], references, chats)

    def repeat(self, times: int) -> PromptBatch:
        """Each prompt ``times`` times, one after the other."""
        if times == 1:
            return self

        def spread(column: list[Any]) -> list[Any]:
            return [entry for entry in column for _ in range(times)]

        references, chats = (None if column is None else spread(column) for column in (self.references, self.chats))
        ids, mask = (x.repeat_interleave(times, dim=0) for x in (self.ids, self.mask))
        return PromptBatch(ids, mask, spread(self.texts), references, chats)


class TokenizerEncoder:
    """A transformers tokenizer, as :mod:`rlhf_studio.inputs.prompts.prepare` wants it.

    A text without any token becomes the beginning-of-text (or end-of-text) token, since a model needs one position to predict from.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer
        self.starts = start_tokens(tokenizer)
        first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        self._first = 0 if first is None else int(first)

    def encode(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Token ids of each text, with or without the tokenizer's own special tokens around it."""
        if not texts:
            return []
        rows = self._tokenizer(texts, truncation=False, verbose=False, add_special_tokens=special)["input_ids"]
        return [row or [self._first] for row in rows]

    def decode(self, ids: list[int]) -> str:
        """The text of these ids, without special tokens."""
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def prepare_prompts(prompts: Prompts, tokenizer: PreTrainedTokenizerBase, config: RunConfig, report: Report) -> Prepared:
    """Make the prompts what the policy reads. Raises :class:`PromptsError`, also when none is left."""
    data = config.data
    report("Encoding the prompts", None)
    chat = chat_template(tokenizer) if data.chat_template else None
    doing = "Writing and encoding the chats" if data.chat_template else "Encoding the prompts"
    prepared = prepare(prompts, data, TokenizerEncoder(tokenizer), chat, config.engine.seed, lambda: report(doing, None))
    if not prepared.ids:
        raise nothing_left(data, prepared.left_out)
    return prepared


def chat_template(tokenizer: PreTrainedTokenizerBase) -> ChatTemplate | None:
    """The tokenizer's own template for chats, or None. A tokenizer with several has one called ``default``, or none for us."""
    source = tokenizer.chat_template.get("default") if isinstance(tokenizer.chat_template, dict) else tokenizer.chat_template
    return None if source is None else ChatTemplate(source, tuple(tokenizer.special_tokens_map.items()))


def pad_left(rows: list[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Rows of unequal length to (ids, mask), each (B, P), padded on the left."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[pad_id] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows])
    return ids, mask


class PromptStream:
    """Endless batches over the prompts. A set smaller than a batch repeats; each pass has a new order.

    What changes is two numbers: the pass and the place in it. The order of pass k depends on the seed and k alone.
    """

    def __init__(self, prompts: Prepared, *, pad_id: int, shuffle: bool, seed: int):
        if not prompts.ids:
            raise ValueError("there are no prompts to draw from")
        self._texts, self._ids, self._references, self._chats, self._pad_id = (
            prompts.texts, prompts.ids, prompts.references, prompts.chats, pad_id
        )  # fmt: skip
        self._fingerprint = prompts.fingerprint()
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
        references, chats = (None if column is None else [column[row] for row in rows] for column in (self._references, self._chats))
        return PromptBatch(ids, mask, [self._texts[row] for row in rows], references, chats)

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of the shortest and of the longest prompt."""
        lengths = [len(ids) for ids in self._ids]
        return min(lengths), max(lengths)

    def of_all_lengths(self, count: int) -> PromptBatch:
        """``count`` prompts from the shortest to the longest; fewer prompts repeat."""
        order = sorted(range(len(self._ids)), key=lambda row: len(self._ids[row]))
        return self.batch([order[place * (len(order) - 1) // max(count - 1, 1)] for place in range(count)])

    def watched_rows(self, count: int) -> list[int]:
        """Row numbers spread evenly over the prompts, the same in every run on this data."""
        count = min(count, len(self._texts))
        return [index * len(self._texts) // count for index in range(count)] if count else []

    def state(self) -> dict[str, Any]:
        return {"pass": self._pass, "place": self._place, "count": len(self._texts), "sha256": self._fingerprint}

    def restore(self, state: dict[str, Any]) -> list[str]:
        """Go on where ``state`` was taken. Returns what may differ from before: a clause when the prompts are not the same."""
        self._pass, self._place = int(state["pass"]), int(state["place"])
        self._order = self._order_of(self._pass)
        if state.get("sha256", self._fingerprint) == self._fingerprint:  # checkpoints of earlier versions have none
            return []
        before, now = f"{state['count']:,}", f"{len(self._texts):,}"
        counts = f"there were {before} and now there are {now}" if before != now else f"there are {now} as before, but not the same"
        return [f"the prompts have changed since: {counts}"]

    def _order_of(self, number: int) -> list[int]:
        if not self._shuffle:
            return list(range(len(self._texts)))
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + number) % 2**63)
        return torch.randperm(len(self._texts), generator=generator).tolist()
