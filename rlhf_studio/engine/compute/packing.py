"""Episodes laid end to end in one row, so that a CPU computes no padding.

Everything in a transformer but attention looks at one token at a time, so it may as well read all episodes as one row of tokens; only
attention has to know where an episode ends. transformers lets a program bring its own attention: ours cuts the row into its episodes
again (as views, those of equal length together) and asks transformers' own for each.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rlhf_studio.engine.types import TokenBatch

ATTENTION = "sdpa_of_packed_rows"
PACKED_FAMILIES = {"gpt2", "gpt_neox", "llama", "mistral", "opt", "phi3", "qwen2", "qwen3"}

Groups = list[tuple[int, int]]
"""Of episodes that follow each other and are equally long: how many they are, and their tokens."""


@dataclass(frozen=True)
class PackedRow:
    """Episodes end to end, shortest first.

    Attributes:
        ids, positions: (1, N) int64; positions start at 0 with each episode.
        groups: where the episodes are.
        places: (M,) where in the row the M states are that are wanted, in the order in which they are.
    """

    ids: Tensor
    positions: Tensor
    groups: Groups
    places: Tensor

    def model_inputs(self) -> dict[str, Tensor]:
        """What the model is called with. A mask of four dimensions is taken as it is, so that none is made; ours reads none."""
        return {"input_ids": self.ids, "position_ids": self.positions, "attention_mask": self.ids.new_zeros((1, 1, 1, 1))}

    def predicting(self, hidden: Tensor) -> Tensor:
        """The states (M, H) of ``hidden`` (1, N, H) at ``places``."""
        return hidden.squeeze(0).index_select(0, self.places)


def pack(batch: TokenBatch) -> PackedRow:
    """The batch's episodes without their last tokens, which predict nothing; wanted is where its response tokens are predicted."""
    lengths, order = (batch.whole_lengths - 1).sort(stable=True)
    ids = torch.cat([batch.prompt_ids, batch.response_ids], dim=1)[order]
    real = torch.cat([batch.prompt_mask, batch.mask], dim=1)[order]
    positions = real.cumsum(dim=1) - 1
    kept = real & (positions < lengths[:, None])
    rows, columns = batch.mask.nonzero(as_tuple=True)
    places = (_starts(lengths, order) + batch.prompt_mask.sum(dim=1) - 1)[rows] + columns
    return PackedRow(ids[kept][None], positions[kept][None], _groups(lengths), places)


def pack_texts(texts: Sequence[Sequence[int]], device: torch.device) -> PackedRow:
    """Texts as token ids; wanted is the last token of each."""
    lengths, order = torch.tensor([len(text) for text in texts], device=device).sort(stable=True)
    ids = torch.tensor([token for row in order.tolist() for token in texts[row]], device=device)
    groups = _groups(lengths)
    positions = torch.cat([torch.arange(width, device=device).repeat(count) for count, width in groups])
    starts = _starts(lengths, order)
    ends = torch.empty_like(lengths)
    ends[order] = lengths
    return PackedRow(ids[None], positions[None], groups, starts + ends - 1)


def _starts(lengths: Tensor, order: Tensor) -> Tensor:
    """Where each episode starts, in the episodes' own order; ``lengths`` are in the row's."""
    starts = torch.empty_like(lengths)
    starts[order] = lengths.cumsum(dim=0) - lengths
    return starts


def _groups(lengths: Tensor) -> Groups:
    widths, counts = lengths.unique_consecutive(return_counts=True)
    return list(zip(counts.tolist(), widths.tolist(), strict=True))


class _Here(threading.local):
    """The row that the calling thread's model reads; None while it reads a plain batch."""

    groups: Groups | None = None


_here = _Here()


@contextlib.contextmanager
def attending_within(layout: PackedRow | TokenBatch) -> Iterator[None]:
    """Inside, this thread's models read this row, each episode for itself; or a plain batch."""
    _here.groups = layout.groups if isinstance(layout, PackedRow) else None
    try:
        yield
    finally:
        _here.groups = None


def pack_rows(model: nn.Module) -> bool:
    """Let ``model`` read packed rows too, if its family is known to read them right; returns whether."""
    inner = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if inner is None or inner.config.model_type not in PACKED_FAMILIES or inner.config._attn_implementation != "sdpa":
        return False
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    inner.set_attn_implementation(ATTENTION)
    return True


@contextlib.contextmanager
def own_attention(model: nn.Module) -> Iterator[None]:
    """Inside, a model that reads packed rows attends as transformers has it, with nothing of ours in between."""
    inner = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if inner is None or inner.config._attn_implementation != ATTENTION:
        yield
        return
    inner.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        inner.set_attn_implementation(ATTENTION)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """Attention of a row (1, heads, N, size) within each of its episodes: (1, N, heads, size). Of a plain batch, transformers' own."""
    groups = _here.groups
    if groups is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    tokens = [count * width for count, width in groups]
    # Split along the tokens as they lie in memory: the backward pass then puts the pieces together in one copy.
    parts = zip(groups, *(x.transpose(1, 2).split(tokens, dim=1) for x in (query, key, value)), strict=True)
    results = []
    for (count, width), *pieces in parts:
        episodes = [piece.unflatten(1, (count, width)).squeeze(0).transpose(1, 2) for piece in pieces]
        result, _ = sdpa_attention_forward(module, *episodes, _window(width, settings.get("sliding_window"), query.device), **settings)
        results.append(result.flatten(0, 1))
    return torch.cat(results)[None], None


def _window(width: int, window: int | None, device: torch.device) -> Tensor | None:
    """Which of ``width`` tokens each may attend to where it sees the last ``window`` only; None where that is all before it."""
    if window is None or window >= width:
        return None
    return torch.ones((width, width), dtype=torch.bool, device=device).tril().triu(1 - window)[None, None]
