"""The frozen records that travel between the phases of a PPO step.

Shapes: B episodes, P prompt length (left-padded), T response length (right-padded), V vocabulary. ``mask`` is True for a
token that the policy sampled, up to and including the first stop token. Numbers under False have no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.inputs.chat import Messages
from rlhf_studio.ppo.advantages import Advantages
from rlhf_studio.ppo.diagnostics import UpdateSums
from rlhf_studio.ppo.objective import Minibatch


class NonFiniteError(RuntimeError):
    """A number that learning needs is NaN or infinite; the message names it. Nothing was learned from it."""


OnProgress = Callable[[str, float | None], None]
"""Takes what is being done, in words, and how much of it is done, 0 to 1; None when nobody knows."""


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
        references = None if self.references is None else self.references[part]
        chats = None if self.chats is None else self.chats[part]
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


@dataclass(frozen=True)
class TokenBatch:
    """Prompts and responses as token ids.

    Attributes:
        prompt_ids: (B, P) int64, left-padded.
        prompt_mask: (B, P) bool, True on real tokens.
        response_ids: (B, T) int64.
        mask: (B, T) bool, the response mask.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    response_ids: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return self.prompt_ids.shape[0]

    @property
    def lengths(self) -> Tensor:
        """(B,) int64: sampled tokens per response."""
        return self.mask.sum(dim=1)

    def rows(self, index: Tensor) -> TokenBatch:
        """The chosen episodes, without the padding columns that none of them needs."""
        prompt_mask, mask = self.prompt_mask[index], self.mask[index]
        first = int(prompt_mask.any(dim=0).to(torch.int8).argmax())
        last = int(mask.sum(dim=1).max())
        return TokenBatch(self.prompt_ids[index][:, first:], prompt_mask[:, first:], self.response_ids[index][:, :last], mask[:, :last])

    @cached_property
    def whole_lengths(self) -> Tensor:
        """(B,) int64: tokens of prompt and response together."""
        return self.prompt_mask.sum(dim=1) + self.lengths

    def model_inputs(self) -> dict[str, Tensor]:
        """``input_ids``, ``position_ids`` and ``attention_mask``, each (B, W): prompt and response at the row's start, padding behind.

        W is the longest row. Nothing attends forward, so what lies behind a row's end needs no mask, and the mask is all ones: then
        attention is plainly causal, which the fast kernels are made for. Unequal prompts and responses are not padded twice.
        """
        width, device = int(self.whole_lengths.max()), self.mask.device
        real = torch.cat([self.prompt_mask, self.mask], dim=1)
        order = (~real).to(torch.uint8).argsort(dim=1, stable=True)[:, :width]
        ids = torch.cat([self.prompt_ids, self.response_ids], dim=1).gather(1, order).masked_fill(~real.gather(1, order), 0)
        positions = torch.arange(width, device=device).expand_as(ids)
        return {"input_ids": ids, "position_ids": positions, "attention_mask": torch.ones_like(ids)}

    def predicting(self, hidden: Tensor) -> Tensor:
        """The states (N, H) of ``hidden`` (B, W, H), a model's answer to :meth:`model_inputs`, that predict the N response tokens.

        In the order of ``mask``. The state at one position predicts the token at the next. The states are picked by row numbers, not by a
        boolean mask, because their backward pass costs less: it adds rows, where that of a mask searches the mask again.
        """
        rows, columns = self.mask.nonzero(as_tuple=True)
        before = self.prompt_mask.sum(dim=1)[rows] - 1 + columns
        return hidden.flatten(0, 1).index_select(0, rows * hidden.shape[1] + before)


def position_ids(attention: Tensor) -> Tensor:
    """(B, L) positions that count the True entries of ``attention`` (B, L) from 0; under padding the value is 0.

    No model's forward pass derives them from the mask, and GPT-2 with left padding is wrong without them.
    """
    return (attention.long().cumsum(dim=1) - 1).clamp(min=0)


@dataclass(frozen=True)
class Alternatives:
    """The five likeliest tokens at each position: ids and log-probabilities, (N, T, 5), for the N recorded episodes."""

    ids: Tensor
    logprobs: Tensor

    def widened(self, width: int) -> Alternatives:
        """The same, filled up with 0 to ``width`` positions."""
        room = (0, 0, 0, width - self.ids.shape[1])
        return Alternatives(torch.nn.functional.pad(self.ids, room), torch.nn.functional.pad(self.logprobs, room))

    @staticmethod
    def cat(tables: Sequence[Alternatives]) -> Alternatives | None:
        """Tables of one width, of episodes that follow each other, as one; None when there are none."""
        if not tables:
            return None
        return Alternatives(torch.cat([table.ids for table in tables]), torch.cat([table.logprobs for table in tables]))


@dataclass(frozen=True)
class ForwardOutput:
    """One model's view of a batch.

    Attributes:
        logprobs: (B, T) float32 of the sampled tokens, at the sampling temperature.
        entropy: (B, T) of the distributions they were drawn from; 0 where it was not asked for.
        values: (B, T) of the critic; None where there is none, or where it was not asked.
        top: likeliest tokens of the recorded episodes, None when there are none.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None
    top: Alternatives | None


@dataclass(frozen=True)
class Scores:
    """What the reward components gave.

    Attributes:
        raw: (B,) weighted sum.
        parts: weighted score (B,) of each component by name.
        shaped: (B,) what the last token earns, after scaling, clipping and the no-end penalty.
        gold: (B,) the gold scorer's value, or None.
        members: (B,) of each model of an ensemble by name, times the ensemble's weight; not part of the sum.
        reading: (B, 2) int64, tokens read and all tokens of the text that was scored, by the component that lost most of it; None where
            every component reads its texts whole.
        early: (B, T) what of ``shaped`` each token before the last one earns; None where all of it is the last token's.
    """

    raw: Tensor
    parts: dict[str, Tensor]
    shaped: Tensor
    gold: Tensor | None
    members: dict[str, Tensor] = field(default_factory=dict)
    reading: Tensor | None = None
    early: Tensor | None = None


@dataclass(frozen=True)
class Samples:
    """Sampled responses, before anything was scored.

    Attributes:
        prompts: the batch of prompts, one for each response.
        tokens: ids and masks of the whole batch, (B, ...).
        own_tokens: those of this rank's episodes alone.
        responses: the texts, without special tokens.
        stopped: (B,) bool, whether the response ended with the stop token.
        policy: log-probabilities, entropy, values and likeliest tokens of the policy that sampled.
        recorded: number of leading episodes that the run folder keeps.
        learned: (B, T) bool, the response tokens that are learned from; None: all of them. The others are only read.
    """

    prompts: PromptBatch
    tokens: TokenBatch
    own_tokens: TokenBatch
    responses: list[str]
    stopped: Tensor
    policy: ForwardOutput
    recorded: int
    learned: Tensor | None = None

    @property
    def mask(self) -> Tensor:
        """(B, T) bool, the tokens that are learned from."""
        return self.tokens.mask if self.learned is None else self.learned


@dataclass(frozen=True)
class ReferencePass:
    """The reference's view of the samples: its log-probabilities and likeliest tokens, and the KL (B, T) by the configured estimator."""

    output: ForwardOutput
    kl: Tensor


@dataclass(frozen=True)
class Rollout:
    """One batch of episodes with everything known before learning from it. Float tensors are float32 (B, T) unless said.

    Attributes:
        tokens: ids and masks.
        prompts, responses: the texts, as people and reward models read them.
        stopped: (B,) bool, whether the response ended with the stop token.
        logprobs, ref_logprobs: at the sampled tokens, at the sampling temperature.
        values, entropy, kl: per token; ``kl`` by the configured estimator.
        rewards, advantages, whitened_advantages, returns, deltas: per token. Without a critic there are no ``values``, ``returns`` and
            ``deltas``: they are None.
        kl_coef: β of this step, score units per nat.
        scores: what the episode earned.
        recorded: number of leading episodes that are kept for the inspector.
        top, ref_top: likeliest tokens of policy and reference for the recorded episodes.
    """

    tokens: TokenBatch
    prompts: list[str]
    responses: list[str]
    stopped: Tensor
    logprobs: Tensor
    ref_logprobs: Tensor
    values: Tensor | None
    entropy: Tensor
    kl: Tensor
    rewards: Tensor
    advantages: Tensor
    whitened_advantages: Tensor
    returns: Tensor | None
    deltas: Tensor | None
    kl_coef: float
    scores: Scores
    recorded: int
    top: Alternatives
    ref_top: Alternatives
    learned: Tensor | None = None

    @property
    def mask(self) -> Tensor:
        """(B, T) bool, the tokens that are learned from: those of the responses, or some of them (:class:`Samples`)."""
        return self.tokens.mask if self.learned is None else self.learned

    @classmethod
    def of(
        cls, samples: Samples, scores: Scores, reference: ReferencePass, rewards: Tensor, advantages: Advantages, kl_coef: float
    ) -> Rollout:
        """What the phases of a step found, in one record."""
        policy, other = samples.policy, reference.output
        assert policy.top is not None and other.top is not None  # at least one episode is recorded
        return cls(
            tokens=samples.tokens,
            prompts=samples.prompts.texts,
            responses=samples.responses,
            stopped=samples.stopped,
            logprobs=policy.logprobs,
            ref_logprobs=other.logprobs,
            values=policy.values,
            entropy=policy.entropy,
            kl=reference.kl,
            rewards=rewards,
            advantages=advantages.advantages,
            whitened_advantages=advantages.whitened,
            returns=advantages.returns,
            deltas=advantages.deltas,
            kl_coef=kl_coef,
            scores=scores,
            recorded=samples.recorded,
            top=policy.top,
            ref_top=other.top,
            learned=samples.learned,
        )

    def minibatch(self, rows: Tensor, mask: Tensor) -> Minibatch:
        """What the objective needs of the episodes ``rows`` (b,), as wide as their ``mask`` (b, t)."""
        part = (rows, slice(mask.shape[1]))
        values = None if self.values is None else self.values[part]
        returns = None if self.returns is None else self.returns[part]
        mask = mask if self.learned is None else self.learned[part]
        return Minibatch(mask, self.logprobs[part], self.ref_logprobs[part], values, self.whitened_advantages[part], returns)


@dataclass(frozen=True)
class MinibatchStats:
    """What is known of one minibatch before its optimizer step.

    Attributes:
        sums: statistics over all of its tokens.
        parts: of this rank's episodes, in parts: their numbers (b,), and the new log-probabilities and values, (b, t) each; t may be short
            of T. Without a critic the values are None.
    """

    sums: UpdateSums
    parts: list[tuple[Tensor, Tensor, Tensor | None]]


@dataclass(frozen=True)
class UpdateStats:
    """What is known of one update.

    Attributes:
        sums: statistics over the response tokens of all minibatches.
        grad_norm: mean over the optimizer steps; NaN when there were none.
        first_log_ratio: largest |log ratio| in the first minibatch before any step: 0 up to rounding when all is well.
        optimizer_steps: steps applied.
        stopped_early: whether the target KL ended the passes.
        logprobs: (B, T) of the response tokens as the last pass that reached them saw them, before its optimizer step.
        problems: why minibatches were left out, one sentence each.
        minibatches: one for each minibatch whose gradient was computed, in their order.
    """

    sums: UpdateSums
    grad_norm: float
    first_log_ratio: float
    optimizer_steps: int
    stopped_early: bool
    logprobs: Tensor
    problems: list[str] = field(default_factory=list)
    minibatches: list[MinibatchStats] = field(default_factory=list)


@dataclass(frozen=True)
class StepSoFar:
    """What a step has found by the end of one of its phases; None is what a later phase finds. ``kl_coef`` is its β."""

    kl_coef: float
    samples: Samples
    scores: Scores | None = None
    reference: ReferencePass | None = None
    rollout: Rollout | None = None
    stats: UpdateStats | None = None
