"""From prompts to a complete :class:`Rollout`: sample, score, compare with the reference, shape rewards, estimate advantages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import GenerationConfig, RunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import LEAST_ROWS
from rlhf_studio.engine.distributed.gathering import concat_parts, gather_columns, gather_output, gather_tokens
from rlhf_studio.engine.loop.prompts import PromptBatch
from rlhf_studio.engine.models.forward import ForwardOutput, ForwardPass
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.models.reference import Reference
from rlhf_studio.engine.rewards.scorer import Episodes, Scorer
from rlhf_studio.engine.sampling.decode import sample_responses
from rlhf_studio.engine.sampling.traced_step import TracedStep
from rlhf_studio.engine.types import NonFiniteError, Rollout, Scores, TokenBatch
from rlhf_studio.ppo.advantages import gae, scale_to_unit_variance, whiten
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.ppo.masking import masked_select
from rlhf_studio.ppo.rewards import shape_rewards

Timer = Callable[[str], AbstractContextManager[None]]
"""``with timer("rollout"):`` adds the block's seconds to that phase."""


@dataclass(frozen=True)
class Models:
    """Everything that a rollout needs and that stays the same from step to step."""

    policy: Policy
    reference: Reference
    scorer: Scorer
    tokenizer: PreTrainedTokenizerBase
    config: RunConfig
    compute: Compute
    stop_id: int | None
    pad_id: int
    traced_step: TracedStep | None = None

    @property
    def reader(self) -> ForwardPass:
        """Reads in parts of a micro-batch, at the sampling temperature."""
        size = self.config.ppo.micro_batch
        return ForwardPass(self.compute, self.config.generation.temperature, size)


def collect(models: Models, prompts: PromptBatch, kl_coef: float, generator: torch.Generator, timer: Timer) -> Rollout:
    """Play one batch of episodes. ``kl_coef`` is the controller's coefficient of this step.

    With several processes each plays, scores and reads its share; what is returned is the whole batch, the same for all.

    Raises :class:`NonFiniteError` when the policy cannot be sampled from, and :class:`RewardError`.
    """
    ranks, count = models.compute.ranks, len(prompts.texts)
    recorded, mine = min(models.config.engine.record_samples, count), ranks.rows(count)
    noted = max(min(recorded - mine.start, mine.stop - mine.start), 0)  # of this share
    with timer("rollout"):
        share, said = _play(models, prompts, generator, noted)
        said = _complete(models, share, said, noted)
        tokens = gather_tokens(ranks, share, prompts.ids, prompts.mask)
        policy = gather_output(ranks, said, share, recorded)
        responses = decode_responses(models, tokens)
        stopped = ends_with_stop(tokens, models.stop_id)
    with timer("score"):
        episodes = Episodes(prompts.texts, responses, stopped.tolist(), tokens.lengths.tolist(), prompts.references, prompts.chats)
        scores = models.scorer(episodes)
    with timer("reference"):
        with models.reference.active() as model:
            read = models.reader.run(model, share, noted)
        reference = gather_output(ranks, read, share, recorded)
        kl = _kl(models, share, policy, reference)
    return _assemble(models, prompts, tokens, responses, stopped, scores, policy, reference, kl, kl_coef, recorded)


def _play(models: Models, prompts: PromptBatch, generator: torch.Generator, noted: int) -> tuple[TokenBatch, ForwardOutput]:
    """This process's share of the batch; a failure in one process is everyone's."""
    ranks = models.compute.ranks
    try:
        played = sample(models, prompts, models.config.generation, generator, noted, ranks.rows(len(prompts.texts)))
    except NonFiniteError as error:
        ranks.raise_together(str(error), NonFiniteError)
        raise
    ranks.raise_together("", NonFiniteError)
    return played


def sample(
    models: Models,
    prompts: PromptBatch,
    settings: GenerationConfig,
    generator: torch.Generator,
    recorded: int = 0,
    part: slice = slice(None),
    limits: Tensor | None = None,
) -> tuple[TokenBatch, ForwardOutput]:
    """Sample one response for each prompt of ``part`` on the models's device.

    ``limits`` (B,) are drawn when a shortest limit is set and none are given.

    Random numbers are drawn for all prompts, so that an episode is the same whoever plays it, and however many are sampled together.
    """
    device, count = models.compute.device, len(prompts.texts)
    if limits is None and settings.response_length_min:
        drawn = torch.rand(count, generator=generator, device=device)
        span = settings.response_length - settings.response_length_min + 1
        limits = settings.response_length_min + (drawn * span).long().clamp(max=span - 1)
    uniforms = torch.rand((count, settings.response_length), generator=generator, device=device, dtype=torch.float64)
    least = models.traced_step.rows_per_lane if models.traced_step else LEAST_ROWS

    def play(rows: slice) -> tuple[TokenBatch, ForwardOutput]:
        with models.compute.autocast():
            return sample_responses(
                models.policy,
                prompts.ids[rows].to(device),
                prompts.mask[rows].to(device),
                settings,
                uniforms=uniforms[rows],
                stop_id=models.stop_id,
                pad_id=models.pad_id,
                limits=None if limits is None else limits[rows],
                top_rows=max(min(first + recorded, rows.stop) - rows.start, 0),
                ranks=models.compute.ranks,
                later_step=later_step,
            )

    first, stop, _ = part.indices(count)
    lanes, shares = models.compute.lanes, []
    with models.policy.merged():
        later_step = models.traced_step and models.traced_step.ready(settings, lanes)
        for together in _cut(slice(first, stop), settings.batch_size or stop - first):
            rows = together.stop - together.start
            shares += lanes.map(play, _cut(together, lanes.rows_per_part(rows, rows, least)))
    return concat_parts(shares, models.pad_id)


def _cut(rows: slice, size: int) -> list[slice]:
    """The rows in parts of at most ``size``."""
    return [slice(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size)]


def _complete(models: Models, tokens: TokenBatch, said: ForwardOutput, recorded: int) -> ForwardOutput:
    """What was noted while sampling, as exact as the update will see it.

    In half precision the decoding steps and a whole pass round differently, by more than PPO's ratio may be off: read again.
    """
    if models.compute.dtype is not torch.float32:
        return models.reader.run(models.policy, tokens, recorded, critic=models.policy)
    return said if models.policy.critic is None else replace(said, values=models.reader.values(models.policy, tokens))


def decode_responses(models: Models, tokens: TokenBatch) -> list[str]:
    """The response texts, without special tokens.

    Each is read behind its prompt, so that its leading space stays: many tokenizers drop it from a text's first token.
    """
    prompts = _rows(tokens.prompt_ids, tokens.prompt_mask)
    responses = _rows(tokens.response_ids, tokens.mask)
    before = _decode(models.tokenizer, prompts)
    whole = _decode(models.tokenizer, [prompt + response for prompt, response in zip(prompts, responses, strict=True)])
    return [
        # The second way is for the rare decoder that changes the prompt's text by what follows.
        text[len(prompt) :] if text.startswith(prompt) else _decode(models.tokenizer, [ids])[0]
        for text, prompt, ids in zip(whole, before, responses, strict=True)
    ]


def _rows(ids: Tensor, mask: Tensor) -> list[list[int]]:
    return [row[keep].tolist() for row, keep in zip(ids.cpu(), mask.cpu(), strict=True)]


def _decode(tokenizer: PreTrainedTokenizerBase, rows: list[list[int]]) -> list[str]:
    return tokenizer.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def ends_with_stop(tokens: TokenBatch, stop_id: int | None) -> Tensor:
    """(B,) bool on the CPU: whether the last sampled token is the stop token. Without a stop token every response counts as ended."""
    if stop_id is None:
        return torch.ones(len(tokens), dtype=torch.bool)
    last = tokens.response_ids.gather(1, tokens.lengths[:, None] - 1).squeeze(1)
    return (last == stop_id).cpu()


def _kl(models: Models, share: TokenBatch, policy: ForwardOutput, reference: ForwardOutput) -> Tensor:
    estimator = models.config.ppo.kl_estimator
    if estimator == "full":
        exact = models.reader.full_kl(models.policy, models.reference, share)
        return gather_columns(models.compute.ranks, exact, policy.logprobs.shape[1])
    return kl_per_token(policy.logprobs, reference.logprobs, estimator)


def _assemble(
    models: Models,
    prompts: PromptBatch,
    tokens: TokenBatch,
    responses: list[str],
    stopped: Tensor,
    scores: Scores,
    policy: ForwardOutput,
    reference: ForwardOutput,
    kl: Tensor,
    kl_coef: float,
    recorded: int,
) -> Rollout:
    settings, mask = models.config.ppo, tokens.mask
    charged = kl_coef if settings.kl_placement == "reward" else 0.0
    rewards = shape_rewards(kl, scores.shaped.to(kl.device), mask, charged)
    if settings.whiten_rewards:
        rewards = scale_to_unit_variance(rewards, mask)
    assert policy.top is not None and reference.top is not None  # at least one episode is recorded
    advantages, returns, deltas = gae(rewards, policy.values, mask, settings.gamma, settings.lam)
    whitened = whiten(advantages, mask) if settings.whiten_advantages else advantages
    return Rollout(
        tokens=tokens,
        prompts=prompts.texts,
        responses=responses,
        stopped=stopped,
        logprobs=policy.logprobs,
        ref_logprobs=reference.logprobs,
        values=policy.values,
        entropy=policy.entropy,
        kl=kl,
        rewards=masked_select(rewards, mask),
        advantages=masked_select(advantages, mask),
        whitened_advantages=masked_select(whitened, mask),
        returns=masked_select(returns, mask),
        deltas=masked_select(deltas, mask),
        scores=scores,
        recorded=recorded,
        top=policy.top,
        ref_top=reference.top,
    )
