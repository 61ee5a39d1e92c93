"""Sequence packing: episodes one after the other in a single row, so that a CPU computes nothing for padding.

Every part of a transformer except attention works on each token by itself, so it can take all episodes as one row of tokens. Only
attention must know where an episode ends. transformers lets a program register its own attention function: ours splits the packed row
into its episodes (views of the same memory, episodes of equal length together) and calls transformers' SDPA attention for each group.

Shapes: N tokens in the packed row, M positions whose hidden states are used: they predict a token or a score, H hidden size.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rlhf_studio.engine.compute.shared_starts import SharedStarts, common_start
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.inputs.families import TESTED_FAMILIES

ATTENTION = "sdpa_of_packed_rows"  # the name under which our attention function is registered

WORTH_SHARING = 0.05  # of all tokens: for fewer, copying queries, keys and values costs more than it saves

Groups = list[tuple[int, int]]
"""For each group of neighbouring episodes of equal length: the number of episodes, and the tokens of each."""


@dataclass(frozen=True)
class PackedRow:
    """Episodes one after the other, shortest first.

    Attributes:
        ids, positions: (1, N) int64 token ids and position ids; position ids start at 0 in each episode.
        groups: where the episodes are in the row.
        used: (M,) int64, the positions in the row whose hidden states are used, in the order that the caller gave.
        starts: of texts that share their starts; ``groups`` are then those of the whole texts. None: nothing is shared.
    """

    ids: Tensor
    positions: Tensor
    groups: Groups
    used: Tensor
    starts: SharedStarts | None = None

    def model_inputs(self) -> dict[str, Tensor]:
        """Keyword arguments for the model. The mask is a placeholder: with four dimensions transformers builds none of its own from it,
        and our attention does not use it.
        """
        return {"input_ids": self.ids, "position_ids": self.positions, "attention_mask": self.ids.new_zeros((1, 1, 1, 1))}

    def predicting(self, hidden: Tensor) -> Tensor:
        """The hidden states (M, H) at the ``used`` positions of ``hidden`` (1, N, H)."""
        return hidden.squeeze(0).index_select(0, self.used)


def pack(batch: TokenBatch) -> PackedRow:
    """The batch's episodes without their last tokens, which predict nothing.

    The positions that predict response tokens are used, in the order of ``batch.mask``: M is the number of response tokens.
    """
    lengths, order = (batch.whole_lengths - 1).sort(stable=True)
    ids = torch.cat([batch.prompt_ids, batch.response_ids], dim=1)[order]
    real = torch.cat([batch.prompt_mask, batch.mask], dim=1)[order]
    positions = real.cumsum(dim=1) - 1
    needed = real & (positions < lengths[:, None])
    rows, columns = batch.mask.nonzero(as_tuple=True)
    used = (_starts(lengths, order) + batch.prompt_mask.sum(dim=1) - 1)[rows] + columns
    return PackedRow(ids[needed][None], positions[needed][None], _groups(lengths), used)


def pack_texts(texts: Sequence[Sequence[int]], device: torch.device, used: Sequence[Sequence[int]] | None = None) -> PackedRow:
    """Texts given as token ids, packed on ``device``.

    ``used`` has the positions of each text that are used, counted from its start; without it, its last token.
    """
    lengths, order = torch.tensor([len(text) for text in texts], device=device).sort(stable=True)
    ids = torch.tensor([token for row in order.tolist() for token in texts[row]], device=device)
    groups = _groups(lengths)
    positions = torch.cat([torch.arange(width, device=device).repeat(count) for count, width in groups])
    starts = _starts(lengths, order).tolist()
    within = used or [[len(text) - 1] for text in texts]
    indices = [start + index for start, row in zip(starts, within, strict=True) for index in row]
    return PackedRow(ids[None], positions[None], groups, torch.tensor(indices, device=device))


def pack_twins(texts: Sequence[Sequence[int]], device: torch.device, used: Sequence[Sequence[int]]) -> PackedRow:
    """Texts of which the first half and the second half are pairs. The beginning that a pair shares stands in the row once.

    Where that is less than :data:`WORTH_SHARING` of all tokens, the texts are packed as they are.
    ``used`` has the positions of each text that are used, counted from its start.
    """
    half = len(texts) // 2
    shared = [0] * half + [common_start(first, second) for first, second in zip(texts[:half], texts[half:], strict=True)]
    if sum(shared) < WORTH_SHARING * sum(map(len, texts)):
        return pack_texts(texts, device, used)
    own_lengths = [len(text) - start for text, start in zip(texts, shared, strict=True)]
    in_row = [0, *itertools.accumulate(own_lengths)]

    def indices_of(row: int) -> tuple[range, range]:
        """Where the tokens of a text are in the packed row: those of its start, and its own."""
        first = in_row[row % half]  # the twin in the first half has the start as its own
        return range(first, first + shared[row]), range(in_row[row], in_row[row + 1])

    lengths, order = torch.tensor([len(text) for text in texts]).sort(stable=True)
    spread: list[int] = []
    own = [0] * in_row[-1]
    copies: list[int] = []
    originals: list[int] = []
    for row in order.tolist():
        start, rest = indices_of(row)
        copies += range(len(spread), len(spread) + len(start))
        originals += start
        own[rest.start : rest.stop] = range(len(spread) + len(start), len(spread) + len(texts[row]))
        spread += [*start, *rest]
    ids = [token for text, start in zip(texts, shared, strict=True) for token in text[start:]]
    positions = [index for text, start in zip(texts, shared, strict=True) for index in range(start, len(text))]
    indices = [
        [*start, *rest][index] for (start, rest), within in zip(map(indices_of, range(len(texts))), used, strict=True) for index in within
    ]
    tensors = (torch.tensor(numbers, dtype=torch.int64, device=device) for numbers in (spread, own, copies, originals))
    as_row = [torch.tensor(numbers, device=device) for numbers in (ids, positions, indices)]
    return PackedRow(as_row[0][None], as_row[1][None], _groups(lengths), as_row[2], SharedStarts(*tensors))


def _starts(lengths: Tensor, order: Tensor) -> Tensor:
    """(B,) where each episode starts in the row, in the batch's order; ``lengths`` (B,) and ``order`` are in the row's order."""
    starts = torch.empty_like(lengths)
    starts[order] = lengths.cumsum(dim=0) - lengths
    return starts


def _groups(lengths: Tensor) -> Groups:
    widths, counts = lengths.unique_consecutive(return_counts=True)
    return list(zip(counts.tolist(), widths.tolist(), strict=True))


class _ThreadState(threading.local):
    """The groups and the shared starts of the packed row that the calling thread's model is computing; None for a padded batch."""

    groups: Groups | None = None
    starts: SharedStarts | None = None


_current = _ThreadState()


@contextlib.contextmanager
def attention_for(layout: object) -> Iterator[None]:
    """Inside, attention in this thread's forward passes stays within each episode of a :class:`PackedRow`. Others change nothing."""
    if isinstance(layout, PackedRow):
        _current.groups, _current.starts = layout.groups, layout.starts
    try:
        yield
    finally:
        _current.groups, _current.starts = None, None


def enable_packing(model: nn.Module) -> bool:
    """Let ``model`` take packed rows as well as padded batches. False, and nothing changed, for families where this is not tested."""
    inner = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if inner is None or inner.config.model_type not in TESTED_FAMILIES or inner.config._attn_implementation != "sdpa":
        return False
    AttentionInterface.register(ATTENTION, _attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    _use_attention(inner, ATTENTION)
    return True


def takes_packed_rows(model: nn.Module) -> bool:
    """Whether :func:`enable_packing` was successful with this model."""
    inner = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    return inner is not None and inner.config._attn_implementation == ATTENTION


@contextlib.contextmanager
def transformers_attention(model: nn.Module) -> Iterator[None]:
    """Inside, a model with packing enabled uses transformers' own attention function, without ours: for independent comparisons."""
    inner = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if inner is None or inner.config._attn_implementation != ATTENTION:
        yield
        return
    _use_attention(inner, "sdpa")
    try:
        yield
    finally:
        _use_attention(inner, ATTENTION)


def _use_attention(model: PreTrainedModel, name: str) -> None:
    """Set the attention function of a model and of the models in it. A classifier that was given a language model's trunk has settings
    apart from the trunk's, of the same class: transformers 5.17 passes nothing on to those.
    """
    for module in model.modules():
        if isinstance(module, PreTrainedModel) and module.config._attn_implementation != name:
            module.set_attn_implementation(name)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    """Attention within each episode of a packed row (1, heads, N, size): (1, N, heads, size). For a padded batch, transformers' own."""
    groups = _current.groups
    if groups is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    starts = _current.starts
    tokens = [count * width for count, width in groups]
    # Transposed so that the split is along the tokens as they are in memory: the backward pass then joins the pieces in one copy.
    inputs = [x.transpose(1, 2) for x in (query, key, value)]
    if starts is not None:
        inputs = [starts.to_texts(x.squeeze(0))[None] for x in inputs]
    parts = zip(groups, *(x.split(tokens, dim=1) for x in inputs), strict=True)
    results = []
    for (count, width), *pieces in parts:
        episodes = [piece.unflatten(1, (count, width)).squeeze(0).transpose(1, 2) for piece in pieces]
        mask = _sliding_mask(width, settings.get("sliding_window"), query.device)
        result, _ = sdpa_attention_forward(module, episodes[0], episodes[1], episodes[2], mask, **settings)
        results.append(result.flatten(0, 1))
    joined = torch.cat(results)
    return (joined if starts is None else starts.to_row(joined))[None], None


def _sliding_mask(width: int, window: int | None, device: torch.device) -> Tensor | None:
    """(1, 1, width, width) bool: which tokens each token attends to when it sees only the last ``window``, itself included.

    None when the window covers all earlier tokens; attention is then plainly causal.
    """
    if window is None or window >= width:
        return None
    return torch.ones((width, width), dtype=torch.bool, device=device).tril().triu(1 - window)[None, None]
