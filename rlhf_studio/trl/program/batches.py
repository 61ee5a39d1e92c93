"""Prompts as a program's data loader gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from rlhf_studio.engine.loop.prompts import PromptStream
from rlhf_studio.engine.padding import pad_left
from rlhf_studio.engine.types import PromptBatch
from rlhf_studio.inputs.prompts.prepare import Prepared

CHECKED = 16  # prompts that the checks before training read


class LoaderPrompts(PromptStream):
    """The batches of a loader, over and over. The checks before training read the first rows of its dataset."""

    def __init__(self, loader: DataLoader[Any], tokenizer: PreTrainedTokenizerBase, pad: int):
        rows: Any = loader.dataset
        assert loader.collate_fn is not None
        first = prompts_of(loader.collate_fn([rows[number] for number in range(min(CHECKED, len(rows)))]), tokenizer, pad)
        ids = [row[real].tolist() for row, real in zip(first.ids, first.mask, strict=True)]
        super().__init__(Prepared(first.texts, ids, [len(row) for row in ids], None, Counter()), pad_id=pad, shuffle=False, seed=0)
        self._loader, self._tokenizer = loader, tokenizer
        self._batches: Iterator[Any] = iter(())

    def next_batch(self, size: int) -> PromptBatch:
        """The next batch of the loader, which has ``size`` rows."""
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self._loader)
            batch = next(self._batches)
        return prompts_of(batch, self._tokenizer, self._pad_id)


def prompts_of(batch: Any, tokenizer: PreTrainedTokenizerBase, pad: int) -> PromptBatch:
    """The ``input_ids`` (B, L) of a batch without their pad tokens. Raises ValueError where there are none, or a row is empty."""
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    if not isinstance(ids, Tensor) or ids.dim() != 2:
        found = ", ".join(map(str, batch)) if isinstance(batch, Mapping) else type(batch).__name__
        raise ValueError(f"PPOTrainer: a batch of the dataset has no input_ids as one tensor, but {found}; tokenize the prompts first")
    rows = [row[row != tokenizer.pad_token_id].tolist() for row in ids]
    if [] in rows:
        raise ValueError(f"PPOTrainer: prompt {rows.index([])} of a batch has no token besides padding; leave it out of the dataset")
    padded, mask = pad_left(rows, pad)
    return PromptBatch(padded, mask, tokenizer.batch_decode(rows, skip_special_tokens=True))
