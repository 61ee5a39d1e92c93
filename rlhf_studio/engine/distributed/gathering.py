"""Putting the shares of several processes, or of lanes, together to one batch. Alone, everything is returned as it came."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_studio.engine.distributed.ranks import Ranks
from rlhf_studio.engine.types import Alternatives, ForwardOutput, TokenBatch


def gather_tokens(ranks: Ranks, share: TokenBatch, prompt_ids: Tensor, prompt_mask: Tensor) -> TokenBatch:
    """The whole batch (B, ...) from everyone's responses; the prompts (B, P) are known everywhere."""
    if ranks.size == 1:
        return share
    width, device = _widest(ranks, share.mask), share.mask.device
    responses, mask = (gather_columns(ranks, x, width) for x in (share.response_ids, share.mask))
    return TokenBatch(prompt_ids.to(device), prompt_mask.to(device), responses, mask)


def gather_output(ranks: Ranks, mine: ForwardOutput, share: TokenBatch, recorded: int) -> ForwardOutput:
    """The whole batch's reading; the table of likeliest tokens is cut to the first ``recorded`` episodes."""
    if ranks.size == 1:
        return mine
    width, count = _widest(ranks, share.mask), len(share)
    columns = (gather_columns(ranks, x, width) for x in (mine.logprobs, mine.entropy, mine.values))
    return ForwardOutput(*columns, _gather_top(ranks, mine.top, width, count, recorded))


def gather_columns(ranks: Ranks, x: Tensor, width: int) -> Tensor:
    """(b, t) of each process to (B, width), padded with 0."""
    return x if ranks.size == 1 else ranks.gather(torch.nn.functional.pad(x, (0, width - x.shape[1])))


def join_shares(shares: list[tuple[TokenBatch, ForwardOutput]], pad_id: int) -> tuple[TokenBatch, ForwardOutput]:
    """One batch from the shares that were sampled one after the other, or in lanes; T is the longest response of all."""
    if len(shares) == 1:
        return shares[0]
    batches, readings = zip(*shares, strict=True)
    width = max(batch.mask.shape[1] for batch in batches)

    def column(parts: list[Tensor], fill: int = 0) -> Tensor:
        return torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[1]), value=fill) for x in parts])

    tokens = TokenBatch(
        torch.cat([batch.prompt_ids for batch in batches]),
        torch.cat([batch.prompt_mask for batch in batches]),
        column([batch.response_ids for batch in batches], pad_id),
        column([batch.mask for batch in batches]),
    )
    logprobs, entropy, values = (column([getattr(reading, name) for reading in readings]) for name in ("logprobs", "entropy", "values"))
    tops = [reading.top.widened(width) for reading in readings if reading.top is not None]
    return tokens, ForwardOutput(logprobs, entropy, values, Alternatives.cat(tops))


def _widest(ranks: Ranks, mask: Tensor) -> int:
    return int(ranks.all_reduce_max(mask.shape[1]))


def _gather_top(ranks: Ranks, top: Alternatives | None, width: int, count: int, recorded: int) -> Alternatives:
    alternatives = int(ranks.all_reduce_max(0 if top is None else top.ids.shape[2]))
    ids, logprobs = torch.zeros((count, width, alternatives), dtype=torch.int64), torch.zeros((count, width, alternatives))
    if top is not None:
        rows, columns, _ = top.ids.shape
        ids[:rows, :columns], logprobs[:rows, :columns] = top.ids, top.logprobs
    return Alternatives(ranks.gather(ids)[:recorded], ranks.gather(logprobs)[:recorded])
