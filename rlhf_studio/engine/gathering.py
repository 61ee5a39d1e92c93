"""Putting the shares of several processes, or of lanes, together to one batch. Alone, everything is returned as it came."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_studio.engine.reading import Reading, joined
from rlhf_studio.engine.team import Team
from rlhf_studio.engine.types import Alternatives, TokenBatch


def gather_tokens(team: Team, share: TokenBatch, prompt_ids: Tensor, prompt_mask: Tensor) -> TokenBatch:
    """The whole batch (B, ...) from everyone's responses; the prompts (B, P) are known everywhere."""
    if team.size == 1:
        return share
    width, device = _widest(team, share.mask), share.mask.device
    responses, mask = (gather_columns(team, x, width) for x in (share.response_ids, share.mask))
    return TokenBatch(prompt_ids.to(device), prompt_mask.to(device), responses, mask)


def gather_reading(team: Team, mine: Reading, share: TokenBatch, recorded: int) -> Reading:
    """The whole batch's reading; the table of likeliest tokens is cut to the first ``recorded`` episodes."""
    if team.size == 1:
        return mine
    width, count = _widest(team, share.mask), len(share)
    columns = (gather_columns(team, x, width) for x in (mine.logprobs, mine.entropy, mine.values))
    return Reading(*columns, _gather_top(team, mine.top, width, count, recorded))


def gather_columns(team: Team, x: Tensor, width: int) -> Tensor:
    """(b, t) of each process to (B, width), padded with 0."""
    return x if team.size == 1 else team.gather(torch.nn.functional.pad(x, (0, width - x.shape[1])))


def join_shares(shares: list[tuple[TokenBatch, Reading]], pad_id: int) -> tuple[TokenBatch, Reading]:
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
    return tokens, Reading(logprobs, entropy, values, joined(tops))


def _widest(team: Team, mask: Tensor) -> int:
    return int(team.most(mask.shape[1]))


def _gather_top(team: Team, top: Alternatives | None, width: int, count: int, recorded: int) -> Alternatives:
    alternatives = int(team.most(0 if top is None else top.ids.shape[2]))
    ids, logprobs = torch.zeros((count, width, alternatives), dtype=torch.int64), torch.zeros((count, width, alternatives))
    if top is not None:
        rows, columns, _ = top.ids.shape
        ids[:rows, :columns], logprobs[:rows, :columns] = top.ids, top.logprobs
    return Alternatives(team.gather(ids)[:recorded], team.gather(logprobs)[:recorded])
