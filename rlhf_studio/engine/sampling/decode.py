"""Sampling responses token by token with a key-value cache.

Our own loop rather than ``generate()``: the model's generation_config cannot leak in (top_k 50, forced tokens, repetition
penalty), log-probabilities, values and entropy are taken while the logits are at hand, and rows that have ended leave the batch.

Each token is drawn with one random number of its own (inverse of the cumulative distribution), so that an episode's text
depends on its own numbers only: not on the batch it is in, nor on the process that plays it.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.distributed.ranks import ONE_RANK, Ranks
from rlhf_studio.engine.models.forward import TOP, ForwardOutput
from rlhf_studio.engine.models.kv_cache import PreallocatedLayer
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.models.position_ids import PositionScheme
from rlhf_studio.engine.sampling.draw import Drawn, draw_next
from rlhf_studio.engine.sampling.traced_step import DecodingStep
from rlhf_studio.engine.types import Alternatives, NonFiniteError, TokenBatch

SHRINK_BELOW = 0.8  # rows that ended are dropped when fewer than this share goes on: dropping copies the cache


@torch.no_grad()
def sample_responses(
    policy: Policy,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    settings: GenerationConfig,
    *,
    uniforms: Tensor,
    stop_id: int | None,
    pad_id: int,
    limits: Tensor | None = None,
    recorded: int = 0,
    ranks: Ranks = ONE_RANK,
    later_step: DecodingStep | None = None,
) -> tuple[TokenBatch, ForwardOutput]:
    """Sample one response per prompt.

    Args:
        policy: what is sampled.
        prompt_ids, prompt_mask: (B, P), left-padded.
        uniforms: (B, L) float64 in [0, 1), the random number of each token; L is at least the longest limit.
        stop_id: token that ends a response and belongs to it; None samples up to the limit.
        pad_id: fills the places after the end; its value never matters.
        limits: (B,) most tokens per episode; None takes ``settings.response_length`` for all.
        recorded: leading episodes whose likeliest tokens are noted.
        later_step: the policy's recorded step, for the tokens after the first; None asks the policy.
        ranks: whose weights these are. Split weights need everyone for each token: whoever is done goes along until all are.

    Returns:
        The token batch (T is the longest response), and what the policy said about it; values are 0 when the critic has its own trunk.

    Raises:
        NonFiniteError: the model gives no distribution to sample from, because its logits are NaN or infinite.
    """
    limits = limits if limits is not None else torch.full((len(prompt_ids),), settings.response_length, device=prompt_ids.device)
    longest = uniforms.shape[1] if ranks.sharded else int(limits.max())
    sheet = _Sheet(prompt_ids, prompt_mask, longest, pad_id, recorded, policy.position_scheme)
    own_step = functools.partial(draw_next, policy, settings)
    later_step = later_step or own_step
    going, cache = torch.ones_like(limits, dtype=torch.bool), policy.new_cache(sheet.room)
    can_shrink = all(isinstance(layer, PreallocatedLayer) for layer in cache.layers)
    inputs, positions = prompt_ids, policy.position_scheme(prompt_ids, prompt_mask)
    for step in range(sheet.longest):
        ask = later_step if step else own_step
        drawn = ask(inputs, sheet.attended(step), positions, sheet.of_rows(uniforms[:, step]), cache)
        going = sheet.write(step, going, drawn) & (sheet.of_rows(limits) > step + 1)
        if stop_id is not None:
            going = going & (drawn.tokens != stop_id)
        count = int(going.sum())
        if not ranks.any_has_work(count):
            break
        token = torch.where(going, drawn.tokens, pad_id)
        if can_shrink and 0 < count < SHRINK_BELOW * len(going):
            kept = going.nonzero().squeeze(1)
            cache.batch_select_indices(kept)
            sheet.keep(kept)
            going, token = going[kept], token[kept]
        inputs, positions = token[:, None], sheet.next_positions(step)
    return sheet.finish()


class _Sheet:
    """What is written down while sampling. ``rows`` are the episodes still in the batch; None as long as that is all of them."""

    def __init__(self, prompt_ids: Tensor, prompt_mask: Tensor, longest: int, pad_id: int, recorded: int, position_scheme: PositionScheme):
        self.longest, self._recorded, self._here, self._numbering = longest, recorded, recorded, position_scheme
        self._prompt_ids, self._prompt_mask = prompt_ids, prompt_mask
        self._prompt_lengths = prompt_mask.sum(dim=1)
        self._rows: Tensor | None = None
        shape, device = (len(prompt_ids), longest), prompt_ids.device
        self._ids = torch.full(shape, pad_id, dtype=torch.int64, device=device)
        # A row that has ended keeps getting padding, which its later (unused) positions may not attend to.
        self._attention = torch.cat([prompt_mask.long(), torch.zeros(shape, dtype=torch.int64, device=device)], dim=1)
        self._logprobs, self._entropy, self._values = (torch.zeros(shape, device=device) for _ in range(3))
        self._top: list[tuple[Tensor, Tensor]] = []
        self._last = 0

    @property
    def room(self) -> int:
        return self._attention.shape[1]

    def of_rows(self, x: Tensor) -> Tensor:
        """Of (B, ...) what belongs to the rows in the batch."""
        return x if self._rows is None else x[self._rows]

    def keep(self, places: Tensor) -> None:
        """Drop all rows of the batch but those at ``places``, which ascend."""
        self._rows = places if self._rows is None else self._rows[places]
        self._here = int((self._rows < self._recorded).sum())

    def attended(self, step: int) -> Tensor:
        """(b, P + step) attention mask of the rows before token ``step`` is drawn."""
        return self.of_rows(self._attention[:, : self._prompt_ids.shape[1] + step])

    def next_positions(self, step: int) -> Tensor:
        """(b, 1) position of token ``step``: real tokens before it, where the model counts from 0."""
        if self._numbering.padding is None:
            return self.of_rows(self._prompt_lengths)[:, None] + step
        ids = torch.cat([self._prompt_ids, self._ids[:, : step + 1]], dim=1)
        return self._numbering(self.of_rows(ids), self.attended(step + 1))[:, -1:]

    def write(self, step: int, going: Tensor, drawn: Drawn) -> Tensor:
        """Note token ``step`` of the rows that are still going, and return which those are: none after a token that cannot be drawn."""
        rows = slice(None) if self._rows is None else self._rows
        self._ids[rows, step] = torch.where(going, drawn.tokens, self._ids[rows, step])
        self._attention[rows, self._prompt_ids.shape[1] + step] = going.long()
        for noted, now in ((self._logprobs, drawn.logprobs), (self._entropy, drawn.entropy), (self._values, drawn.values)):
            noted[rows, step] = torch.where(going, now, 0.0)
        if self._recorded:
            self._note_top(drawn)
        self._last = step + 1
        return going & (torch.isfinite(drawn.logprobs) | ~going).all()

    def _note_top(self, drawn: Drawn) -> None:
        best = drawn.distribution[: self._here].topk(min(TOP, drawn.distribution.shape[1]), dim=-1)
        columns = best.indices.cpu(), (best.values - drawn.excess[: self._here]).cpu()
        if self._here < self._recorded:
            assert self._rows is not None
            where = self._rows[: self._here].cpu()
            columns = tuple(x.new_zeros((self._recorded, x.shape[1])).index_copy(0, where, x) for x in columns)
        self._top.append(columns)

    def finish(self) -> tuple[TokenBatch, ForwardOutput]:
        """What was written down. Raises :class:`NonFiniteError` where it ended early."""
        logprobs, entropy, values = (x[:, : self._last] for x in (self._logprobs, self._entropy, self._values))
        if not torch.isfinite(logprobs).all():
            step, episode = (~torch.isfinite(logprobs)).T.nonzero()[0].tolist()
            raise NonFiniteError(f"the policy's logits are not finite in episode {episode}, response token {step}")
        mask = self._attention[:, self._prompt_ids.shape[1] :].bool()[:, : self._last]
        tokens = TokenBatch(self._prompt_ids, self._prompt_mask, self._ids[:, : self._last], mask)
        top = Alternatives(*(torch.stack(column, dim=1) for column in zip(*self._top, strict=True))) if self._top else None
        return tokens, ForwardOutput(logprobs, entropy, values, top)
