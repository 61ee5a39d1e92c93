"""Sampling responses token by token, with a key-value cache.

The engine has its own loop instead of transformers' ``generate()``, for three reasons: the model's generation_config cannot change what is
sampled (top_k 50, forced tokens, repetition penalty); log-probabilities, entropy and values are computed while the logits exist; and rows
whose response has ended leave the batch.

Each token is drawn with one random number of its own, by the inverse of the cumulative distribution. So an episode's text depends on its
own random numbers only: not on the batch that it is in, and not on the rank or lane that samples it.

Shapes: B episodes, b of them still in the batch, P prompt length, T longest response, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.ranks import ONE_RANK, Ranks
from rlhf_studio.engine.models.forward import TOP_K, ForwardOutput
from rlhf_studio.engine.models.kv_cache import PreallocatedLayer
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.sampling.draw import DecodingStep, Drawn, StepInputs
from rlhf_studio.engine.types import Alternatives, NonFiniteError, TokenBatch

SHRINK_BELOW = 0.8  # finished rows leave the batch when less than this fraction is unfinished: it costs a copy of the cache


Sampled = tuple[TokenBatch, ForwardOutput]


def sample_responses(
    policy: Policy,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    settings: GenerationConfig,
    *,
    after_token: Callable[[int], None] = lambda drawn: None,
    **options: Any,
) -> Sampled:
    """Sample one response per prompt: :func:`sampling_steps`, with its arguments, from the first step to the last.

    ``after_token`` is called after each step with the number of tokens drawn so far; what it raises ends them.
    """
    steps = sampling_steps(policy, prompt_ids, prompt_mask, settings, **options)
    for drawn in itertools.count(1):
        try:
            next(steps)
        except StopIteration as end:
            sampled: Sampled = end.value
            return sampled
        after_token(drawn)
    raise AssertionError("a count without an end has ended")


@torch.no_grad()
def sampling_steps(
    policy: Policy,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    settings: GenerationConfig,
    *,
    uniforms: Tensor,
    stop_ids: tuple[int, ...],
    pad_id: int,
    limits: Tensor | None = None,
    top_rows: int = 0,
    ranks: Ranks = ONE_RANK,
    later_step: DecodingStep | None = None,
    look_every: int = 1,
) -> Generator[Drawn, None, Sampled]:
    """Sample one response per prompt; yields what each step has drawn, in tensors that hold only until the next step.

    Args:
        policy: the model to sample from.
        prompt_ids, prompt_mask: (B, P), left-padded.
        uniforms: (B, L) float64 in [0, 1), the random number of each token; L is at least the longest limit.
        stop_ids: the tokens of which each ends a response and belongs to it; without any, sampling goes up to the limit.
        pad_id: the id behind a response's end; its value never matters.
        limits: (B,) most tokens per episode; None takes ``settings.response_length`` for all.
        top_rows: for so many episodes, from the first on, the likeliest tokens at each position are kept.
        ranks: that hold the weights; sharded ones need all ranks for each token, so a rank goes on computing until all have finished.
        later_step: the policy's traced or static step, for the tokens after the first; None uses the model itself.
        look_every: tokens between two looks at which responses have ended: a GPU must be waited for. Steps after all ends are not used.

    Returns:
        The token batch (T is the longest response), its log-probabilities and entropy; and values, if ``policy.values_while_sampling``.

    Raises:
        NonFiniteError: the logits are NaN or infinite, so that there is no distribution to sample from.
    """
    limits = limits if limits is not None else torch.full((len(prompt_ids),), settings.response_length, device=prompt_ids.device)
    longest = uniforms.shape[1] if ranks.sharded else int(limits.max())
    buffers = _ResponseBuffers(prompt_ids, prompt_mask, longest, pad_id, top_rows, policy)
    first_step = DecodingStep(policy, settings)
    later_step = later_step or first_step
    cache = later_step.new_cache(len(limits), buffers.max_length)
    can_shrink = all(isinstance(layer, PreallocatedLayer) for layer in cache.layers)
    unfinished = torch.ones_like(limits, dtype=torch.bool)
    ids, positions = prompt_ids, policy.position_scheme(prompt_ids, prompt_mask)
    for step in range(longest):
        inputs = StepInputs(ids, buffers.attention(step), positions, buffers.in_batch(uniforms[:, step]), cache)
        drawn = (later_step if step else first_step)(inputs)
        unfinished = buffers.write(step, unfinished, drawn) & (buffers.in_batch(limits) > step + 1) & _goes_on(drawn.tokens, stop_ids)
        yield drawn
        token = torch.where(unfinished, drawn.tokens, pad_id)
        if (step + 1) % look_every == 0:
            count = int(unfinished.sum())
            if not ranks.any_has_work(count):
                break
            if can_shrink and (remaining := _remaining(unfinished, count, halves=later_step.by_halves)) is not None:
                cache.batch_select_indices(remaining)
                buffers.keep(remaining)
                unfinished, token = unfinished[remaining], token[remaining]
        ids, positions = token[:, None], buffers.next_positions(step)
    return buffers.finish()


def _goes_on(tokens: Tensor, stop_ids: tuple[int, ...]) -> Tensor:
    """(b,) bool: whether a token is none of those that end a response."""
    goes_on = torch.ones_like(tokens, dtype=torch.bool)
    for stop_id in stop_ids:
        goes_on &= tokens != stop_id
    return goes_on


def _remaining(unfinished: Tensor, count: int, *, halves: bool) -> Tensor | None:
    """The rows that stay in the batch, ascending, when it is time that others leave; ``count`` rows are unfinished.

    With ``halves`` exactly half of the rows stay, some that have ended among them: there is a graph for each number of rows.
    """
    if not halves:
        return unfinished.nonzero().squeeze(1) if 0 < count < SHRINK_BELOW * len(unfinished) else None
    half = (len(unfinished) + 1) // 2
    if not 0 < count <= half < len(unfinished):
        return None
    return (~unfinished).sort(stable=True).indices[:half].sort().values


class _ResponseBuffers:
    """The tokens sampled so far, with their log-probabilities, entropy and perhaps values: (B, longest) each, for all episodes.

    ``_rows`` are the episodes that are still in the batch; None as long as all of them are.
    """

    def __init__(self, prompt_ids: Tensor, prompt_mask: Tensor, longest: int, pad_id: int, top_rows: int, policy: Policy):
        self._top_rows, self._top_rows_in_batch, self._position_scheme = top_rows, top_rows, policy.position_scheme
        self._prompt_ids, self._prompt_mask = prompt_ids, prompt_mask
        self._prompt_lengths = prompt_mask.sum(dim=1)
        self._rows: Tensor | None = None
        shape, device = (len(prompt_ids), longest), prompt_ids.device
        self._ids = torch.full(shape, pad_id, dtype=torch.int64, device=device)
        # Finished rows that stay in the batch get padding as input; no later token may attend to it.
        self._attention = torch.cat([prompt_mask.long(), torch.zeros(shape, dtype=torch.int64, device=device)], dim=1)
        self._logprobs, self._entropy = (torch.zeros(shape, device=device) for _ in range(2))
        self._values = torch.zeros(shape, device=device) if policy.values_while_sampling else None
        self._top: list[tuple[Tensor, Tensor]] = []

    @property
    def max_length(self) -> int:
        """Tokens of prompt and longest possible response together."""
        return self._attention.shape[1]

    def in_batch(self, x: Tensor) -> Tensor:
        """The rows of ``x`` (B, ...) whose episodes are still in the batch: (b, ...)."""
        return x if self._rows is None else x[self._rows]

    def keep(self, rows: Tensor) -> None:
        """Remove all episodes from the batch except its ``rows``, which ascend."""
        self._rows = rows if self._rows is None else self._rows[rows]
        self._top_rows_in_batch = int((self._rows < self._top_rows).sum())

    def attention(self, step: int) -> Tensor:
        """(b, P + step) attention mask: prompts and the ``step`` response tokens before the one that is drawn next."""
        return self.in_batch(self._attention[:, : self._prompt_ids.shape[1] + step])

    def next_positions(self, step: int) -> Tensor:
        """(b, 1) position ids of response token ``step``, which was drawn last and is the next input."""
        if self._position_scheme.padding is None:
            return self.in_batch(self._prompt_lengths)[:, None] + step
        ids = torch.cat([self._prompt_ids, self._ids[:, : step + 1]], dim=1)
        return self._position_scheme(self.in_batch(ids), self.attention(step + 1))[:, -1:]

    def write(self, step: int, unfinished: Tensor, drawn: Drawn) -> Tensor:
        """Store token ``step`` of the ``unfinished`` (b,) rows.

        Returns ``unfinished``, or all False when a log-probability is not finite: then sampling must end.
        """
        rows = slice(None) if self._rows is None else self._rows
        self._ids[rows, step] = torch.where(unfinished, drawn.tokens, self._ids[rows, step])
        self._attention[rows, self._prompt_ids.shape[1] + step] = unfinished.long()
        for buffer, column in ((self._logprobs, drawn.logprobs), (self._entropy, drawn.entropy), (self._values, drawn.values)):
            if buffer is not None:
                buffer[rows, step] = torch.where(unfinished, column, 0.0)
        if self._top_rows:
            self._write_top(drawn)
        return unfinished & (torch.isfinite(drawn.logprobs) | ~unfinished).all()

    def _write_top(self, drawn: Drawn) -> None:
        count = self._top_rows_in_batch
        best = drawn.shifted_logits[:count].topk(min(TOP_K, drawn.shifted_logits.shape[1]), dim=-1)
        ids, logprobs = best.indices, best.values - drawn.log_total[:count]
        if count < self._top_rows:  # some have left the batch: back to the rows of their episodes
            assert self._rows is not None
            rows = self._rows[:count]
            ids, logprobs = (x.new_zeros((self._top_rows, x.shape[1])).index_copy(0, rows, x) for x in (ids, logprobs))
        self._top.append((ids, logprobs))

    def finish(self) -> tuple[TokenBatch, ForwardOutput]:
        """The sampled batch. Raises :class:`NonFiniteError` when a log-probability is not finite."""
        length = int(self._attention[:, self._prompt_ids.shape[1] :].sum(dim=1).max())
        logprobs, entropy = (x[:, :length] for x in (self._logprobs, self._entropy))
        values = None if self._values is None else self._values[:, :length]
        if not torch.isfinite(logprobs).all():
            step, episode = (~torch.isfinite(logprobs)).T.nonzero()[0].tolist()
            raise NonFiniteError(f"the policy's logits are not finite in episode {episode}, response token {step}")
        mask = self._attention[:, self._prompt_ids.shape[1] :].bool()[:, :length]
        tokens = TokenBatch(self._prompt_ids, self._prompt_mask, self._ids[:, :length], mask)
        columns = zip(*self._top[:length], strict=True)
        top = Alternatives(*(torch.stack(column, dim=1).cpu() for column in columns)) if self._top else None
        return tokens, ForwardOutput(logprobs, entropy, values, top)
