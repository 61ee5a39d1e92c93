"""One batch from the parts that ranks or lanes have computed. With one rank, each function returns its input.

Shapes: B episodes of the whole batch, b of this rank's part, T and t the longest response in each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_studio.engine.compute.ranks import Ranks
from rlhf_studio.engine.types import Alternatives, ForwardOutput, TokenBatch


def gather_tokens(ranks: Ranks, tokens: TokenBatch, prompt_ids: Tensor, prompt_mask: Tensor) -> TokenBatch:
    """The whole batch from each rank's ``tokens`` (b, ...). The prompts (B, P) are known on every rank and are not gathered."""
    if ranks.size == 1:
        return tokens
    width, device = _longest_response(ranks, tokens.mask), tokens.mask.device
    responses, mask = (gather_columns(ranks, x, width) for x in (tokens.response_ids, tokens.mask))
    return TokenBatch(prompt_ids.to(device), prompt_mask.to(device), responses, mask)


def gather_output(ranks: Ranks, output: ForwardOutput, tokens: TokenBatch, top_rows: int) -> ForwardOutput:
    """The forward pass over the whole batch, from each rank's ``output`` for its own ``tokens``.

    The table of the likeliest tokens is cut to the first ``top_rows`` episodes of the whole batch.
    """
    if ranks.size == 1:
        return output
    width, count = _longest_response(ranks, tokens.mask), len(tokens)
    logprobs, entropy = (gather_columns(ranks, x, width) for x in (output.logprobs, output.entropy))
    values = None if output.values is None else gather_columns(ranks, output.values, width)
    return ForwardOutput(logprobs, entropy, values, _gather_top(ranks, output.top, width, count, top_rows))


def gather_columns(ranks: Ranks, x: Tensor, width: int) -> Tensor:
    """(b, t) of each rank to (B, width), padded with 0."""
    return x if ranks.size == 1 else ranks.gather(torch.nn.functional.pad(x, (0, width - x.shape[1])))


def concat_parts(parts: list[tuple[TokenBatch, ForwardOutput]], pad_id: int) -> tuple[TokenBatch, ForwardOutput]:
    """One batch from parts that were sampled one after the other or in lanes; T is the longest response of all parts."""
    if len(parts) == 1:
        return parts[0]
    batches, outputs = zip(*parts, strict=True)
    width = max(batch.mask.shape[1] for batch in batches)

    def column(tensors: list[Tensor], fill: int = 0) -> Tensor:
        return torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[1]), value=fill) for x in tensors])

    tokens = TokenBatch(
        torch.cat([batch.prompt_ids for batch in batches]),
        torch.cat([batch.prompt_mask for batch in batches]),
        column([batch.response_ids for batch in batches], pad_id),
        column([batch.mask for batch in batches]),
    )
    logprobs, entropy = (column([getattr(output, name) for output in outputs]) for name in ("logprobs", "entropy"))
    parts_of_values = [output.values for output in outputs if output.values is not None]  # of all parts or of none
    values = column(parts_of_values) if parts_of_values else None
    tops = [output.top.widened(width) for output in outputs if output.top is not None]
    return tokens, ForwardOutput(logprobs, entropy, values, Alternatives.cat(tops))


def _longest_response(ranks: Ranks, mask: Tensor) -> int:
    return int(ranks.all_reduce_max(mask.shape[1]))


def _gather_top(ranks: Ranks, top: Alternatives | None, width: int, count: int, top_rows: int) -> Alternatives:
    """Tables of all ranks. gather needs equal shapes: each rank sends its ``count`` episodes, with 0 for those without a table."""
    top_k = int(ranks.all_reduce_max(0 if top is None else top.ids.shape[2]))
    ids, logprobs = torch.zeros((count, width, top_k), dtype=torch.int64), torch.zeros((count, width, top_k))
    if top is not None:
        rows, columns, _ = top.ids.shape
        ids[:rows, :columns], logprobs[:rows, :columns] = top.ids, top.logprobs
    return Alternatives(ranks.gather(ids)[:top_rows], ranks.gather(logprobs)[:top_rows])
