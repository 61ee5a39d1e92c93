"""Sampling responses token by token with a key-value cache.

Our own loop rather than ``generate()``: the model's generation_config cannot leak in (top_k 50, forced tokens, repetition
penalty), log-probabilities, values and entropy are taken while the logits are at hand, and rows that have ended leave the batch.

Each token is drawn with one random number of its own (inverse of the cumulative distribution), so that an episode's text
depends on its own numbers only: not on the batch it is in, nor on the process that plays it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.cache import RoomyLayer
from rlhf_studio.engine.policy import Policy
from rlhf_studio.engine.reading import TOP, Reading
from rlhf_studio.engine.recorded_step import RecordedStep
from rlhf_studio.engine.team import ALONE, Team
from rlhf_studio.engine.types import Alternatives, NonFiniteError, TokenBatch, position_ids

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
    team: Team = ALONE,
    step_of: RecordedStep | None = None,
) -> tuple[TokenBatch, Reading]:
    """Sample one response per prompt.

    Args:
        policy: what is sampled.
        prompt_ids, prompt_mask: (B, P), left-padded.
        uniforms: (B, L) float64 in [0, 1), the random number of each token; L is at least the longest limit.
        stop_id: token that ends a response and belongs to it; None samples up to the limit.
        pad_id: fills the places after the end; its value never matters.
        limits: (B,) most tokens per episode; None takes ``settings.response_length`` for all.
        recorded: leading episodes whose likeliest tokens are noted.
        step_of: the policy's recorded step, for the tokens after the first; None asks the policy itself.
        team: whose weights these are. Split weights need everyone for each token: whoever is done goes along until all are.

    Returns:
        The token batch (T is the longest response), and what the policy said about it; values are 0 when the critic has its own trunk.

    Raises:
        NonFiniteError: the model gives no distribution to sample from, because its logits are NaN or infinite.
    """
    limits = limits if limits is not None else torch.full((len(prompt_ids),), settings.response_length, device=prompt_ids.device)
    sheet = _Sheet(prompt_ids, prompt_mask, uniforms.shape[1] if team.sharded else int(limits.max()), pad_id, recorded)
    rows = torch.arange(len(prompt_ids), device=prompt_ids.device)
    going = torch.ones_like(rows, dtype=torch.bool)
    cache = policy.new_cache(sheet.room)
    next_logits = policy.next_logits
    can_shrink = all(isinstance(layer, RoomyLayer) for layer in cache.layers)
    inputs, positions = prompt_ids, position_ids(prompt_mask)
    for step in range(sheet.longest):
        logits, hidden = next_logits(inputs, sheet.attended(rows, step), positions, cache)
        drawn = _draw(logits, uniforms[rows, step], settings)
        values = policy.values(hidden) if policy.critic is None else None
        going = sheet.write(step, rows, going, drawn, values) & (limits[rows] > step + 1)
        if stop_id is not None:
            going = going & (drawn.tokens != stop_id)
        count = int(going.sum())
        if not team.goes_on(count):
            break
        token = torch.where(going, drawn.tokens, pad_id)
        if can_shrink and 0 < count < SHRINK_BELOW * len(rows):
            kept = going.nonzero().squeeze(1)
            cache.batch_select_indices(kept)
            rows, going, token = rows[kept], going[kept], token[kept]
        inputs, positions = token[:, None], sheet.next_positions(rows, step)
        next_logits = step_of or policy.next_logits
    return sheet.finish()


@dataclass(frozen=True)
class _Drawn:
    """One token per row: ids, log-probability and entropy (b,), and the distribution (b, V) as log-probabilities plus ``excess`` (b, 1)."""

    tokens: Tensor
    logprobs: Tensor
    entropy: Tensor
    distribution: Tensor
    excess: Tensor


def _draw(logits: Tensor, uniform: Tensor, settings: GenerationConfig) -> _Drawn:
    x = logits.float() / settings.temperature
    x -= x.amax(dim=-1, keepdim=True)
    weights = x.exp()
    total = weights.sum(dim=-1, keepdim=True)
    # The sum needs more digits than float32 has: a vocabulary's tail of tiny probabilities would vanish beside 1.
    cumulated = _cut(x, weights, settings).cumsum(dim=-1, dtype=torch.float64)
    end = cumulated[:, -1:]
    target = torch.minimum(uniform[:, None] * end, torch.nextafter(end, torch.zeros_like(end)))
    tokens = torch.searchsorted(cumulated, target, right=True).clamp_(max=logits.shape[1] - 1)
    excess = total.log()
    mean = weights.mul_(x.clamp(min=torch.finfo(torch.float32).min)).sum(dim=-1, keepdim=True) / total
    return _Drawn(tokens.squeeze(1), (x.gather(1, tokens) - excess).squeeze(1), (excess - mean).squeeze(1), x, excess)


def _cut(x: Tensor, weights: Tensor, settings: GenerationConfig) -> Tensor:
    """What is sampled from, up to a factor of each row: all of ``weights`` = exp(``x``) (b, V), the k largest, or the nucleus."""
    if settings.top_k and settings.top_k < x.shape[-1]:
        smallest = x.topk(settings.top_k, dim=-1).values[:, -1:]
        weights = weights.masked_fill(x < smallest, 0.0)
    return _keep_nucleus(weights / weights.sum(dim=-1, keepdim=True), settings.top_p) if settings.top_p < 1 else weights


def _keep_nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set of tokens whose probability reaches ``top_p``; the likeliest always stays."""
    ordered, order = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(probabilities).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))


class _Sheet:
    """What is written down while sampling, (B, L) each."""

    def __init__(self, prompt_ids: Tensor, prompt_mask: Tensor, longest: int, pad_id: int, recorded: int):
        self.longest, self._recorded = longest, recorded
        self._prompt_ids, self._prompt_mask = prompt_ids, prompt_mask
        self._prompt_lengths = prompt_mask.sum(dim=1)
        shape, device = (len(prompt_ids), longest), prompt_ids.device
        self._ids = torch.full(shape, pad_id, dtype=torch.int64, device=device)
        # A row that has ended keeps getting padding, which its later (unused) positions may not attend to.
        self._attention = torch.cat([prompt_mask.long(), torch.zeros(shape, dtype=torch.int64, device=device)], dim=1)
        self._logprobs, self._entropy, self._values = (torch.zeros(shape, device=device) for _ in range(3))
        self._top: list[tuple[Tensor, Tensor]] = []
        self._last = 0
        self._failure: NonFiniteError | None = None

    @property
    def room(self) -> int:
        return self._attention.shape[1]

    def attended(self, rows: Tensor, step: int) -> Tensor:
        """(b, P + step) attention mask of the rows before token ``step`` is drawn."""
        return self._attention[rows, : self._prompt_ids.shape[1] + step]

    def next_positions(self, rows: Tensor, step: int) -> Tensor:
        """(b, 1) position of token ``step``: real tokens before it."""
        return self._prompt_lengths[rows, None] + step

    def write(self, step: int, rows: Tensor, going: Tensor, drawn: _Drawn, values: Tensor | None) -> Tensor:
        """Note token ``step`` of the rows that are still going, and return which those are: none after a token that cannot be drawn."""
        broken = going & ~torch.isfinite(drawn.logprobs)
        if broken.any():
            episode = int(rows[broken.to(torch.int8).argmax()])
            self._failure = NonFiniteError(f"the policy's logits are not finite in episode {episode}, response token {step}")
            return torch.zeros_like(going)
        self._ids[rows, step] = torch.where(going, drawn.tokens, self._ids[rows, step])
        self._attention[rows, self._prompt_ids.shape[1] + step] = going.long()
        self._logprobs[rows, step] = torch.where(going, drawn.logprobs, 0.0)
        self._entropy[rows, step] = torch.where(going, drawn.entropy, 0.0)
        if values is not None:
            self._values[rows, step] = torch.where(going, values, 0.0)
        if self._recorded:
            self._note_top(rows, drawn)
        self._last = step + 1
        return going

    def _note_top(self, rows: Tensor, drawn: _Drawn) -> None:
        chosen = rows < self._recorded
        best = drawn.distribution[chosen].topk(min(TOP, drawn.distribution.shape[1]), dim=-1)
        ids, logprobs = (torch.zeros((self._recorded, best.indices.shape[1]), dtype=x.dtype) for x in (best.indices, best.values))
        where = rows[chosen].cpu()
        ids[where], logprobs[where] = best.indices.cpu(), (best.values - drawn.excess[chosen]).cpu()
        self._top.append((ids, logprobs))

    def finish(self) -> tuple[TokenBatch, Reading]:
        """What was written down. Raises :class:`NonFiniteError` where it ended early."""
        if self._failure is not None:
            raise self._failure
        mask = self._attention[:, self._prompt_ids.shape[1] :].bool()[:, : self._last]
        tokens = TokenBatch(self._prompt_ids, self._prompt_mask, self._ids[:, : self._last], mask)
        logprobs, entropy, values = (x[:, : self._last] for x in (self._logprobs, self._entropy, self._values))
        top = Alternatives(*(torch.stack(column, dim=1) for column in zip(*self._top, strict=True))) if self._top else None
        return tokens, Reading(logprobs, entropy, values, top)
