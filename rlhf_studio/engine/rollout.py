"""From prompts to a complete :class:`Rollout`: sample, score, compare with the reference, shape rewards, estimate advantages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import GenerationConfig, RunConfig
from rlhf_studio.engine.device import Compute
from rlhf_studio.engine.policy import Policy, Reference, ResponseModel, response_logprobs
from rlhf_studio.engine.prompts import PromptBatch
from rlhf_studio.engine.rewards.scorer import Episodes, Scorer
from rlhf_studio.engine.sampling import sample_responses
from rlhf_studio.engine.types import Alternatives, Rollout, Scores, TokenBatch
from rlhf_studio.ppo.advantages import gae, scale_to_unit_variance, whiten
from rlhf_studio.ppo.kl import full_kl, kl_per_token
from rlhf_studio.ppo.logprobs import log_distribution
from rlhf_studio.ppo.masking import masked_select
from rlhf_studio.ppo.rewards import shape_rewards

Timer = Callable[[str], AbstractContextManager[None]]
"""``with timer("rollout"):`` adds the block's seconds to that phase."""

TOP = 5


@dataclass(frozen=True)
class Player:
    """Everything that a rollout needs and that stays the same from step to step."""

    policy: Policy
    reference: Reference
    scorer: Scorer
    tokenizer: PreTrainedTokenizerBase
    config: RunConfig
    compute: Compute
    stop_id: int | None
    pad_id: int


@dataclass(frozen=True)
class _Reading:
    """What one model says about the sampled tokens: (B, T) float32, and the likeliest tokens of the recorded episodes."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None
    top: Alternatives
    distributions: list[Tensor]  # log-probabilities (b, T, V) per chunk, only for the full KL


def collect(player: Player, prompts: PromptBatch, kl_coef: float, generator: torch.Generator, timer: Timer) -> Rollout:
    """Play one batch of episodes. ``kl_coef`` is the controller's coefficient of this step.

    Raises :class:`NonFiniteError` when the policy cannot be sampled from, and :class:`RewardError`.
    """
    with timer("rollout"):
        tokens = sample(player, prompts, player.config.generation, generator)
        responses = decode_responses(player, tokens)
        stopped = ends_with_stop(tokens, player.stop_id)
    with timer("score"):
        episodes = Episodes(prompts.texts, responses, stopped.tolist(), tokens.lengths.tolist(), prompts.references)
        scores = player.scorer(episodes)
    with timer("reference"):
        recorded = min(player.config.engine.record_samples, len(tokens))
        policy_reading, reference_reading = read_both(player, tokens, recorded)
        kl = _kl(player.config.ppo.kl_estimator, policy_reading, reference_reading)
    return _assemble(player, prompts, tokens, responses, stopped, scores, policy_reading, reference_reading, kl, kl_coef, recorded)


def sample(player: Player, prompts: PromptBatch, settings: GenerationConfig, generator: torch.Generator) -> TokenBatch:
    """Sample one response per prompt on the player's device; limits per episode are drawn when a shortest limit is set."""
    device = player.compute.device
    limits = None
    if settings.response_length_min:
        drawn = torch.rand(len(prompts.texts), generator=generator, device=device)
        span = settings.response_length - settings.response_length_min + 1
        limits = settings.response_length_min + (drawn * span).long().clamp(max=span - 1)
    with player.compute.autocast():
        return sample_responses(
            player.policy,
            prompts.ids.to(device),
            prompts.mask.to(device),
            settings,
            stop_id=player.stop_id,
            pad_id=player.pad_id,
            generator=generator,
            limits=limits,
        )


def decode_responses(player: Player, tokens: TokenBatch) -> list[str]:
    """The response texts, without special tokens.

    Each is read behind its prompt, so that its leading space stays: many tokenizers drop it from a text's first token.
    """
    prompts = _rows(tokens.prompt_ids, tokens.prompt_mask)
    responses = _rows(tokens.response_ids, tokens.mask)
    before = _decode(player.tokenizer, prompts)
    whole = _decode(player.tokenizer, [prompt + response for prompt, response in zip(prompts, responses, strict=True)])
    return [
        # The second way is for the rare decoder that changes the prompt's text by what follows.
        text[len(prompt) :] if text.startswith(prompt) else _decode(player.tokenizer, [ids])[0]
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


def read_both(player: Player, tokens: TokenBatch, recorded: int) -> tuple[_Reading, _Reading]:
    """Log-probabilities of the sampled tokens under policy and reference, at the sampling temperature."""
    keep = player.config.ppo.kl_estimator == "full"
    policy_reading = _read(player, player.policy, tokens, recorded, keep, with_values=True)
    with player.reference.active() as reference:
        return policy_reading, _read(player, reference, tokens, recorded, keep, with_values=False)


@torch.no_grad()
def _read(player: Player, model: ResponseModel, tokens: TokenBatch, recorded: int, keep: bool, *, with_values: bool) -> _Reading:
    size = player.config.ppo.micro_batch_size or player.config.ppo.mini_batch_size
    temperature = player.config.generation.temperature
    shape = tokens.response_ids.shape
    logprobs, entropy, values = (torch.zeros(shape, device=tokens.response_ids.device) for _ in range(3))
    top_ids, top_logprobs, distributions = [], [], []
    for start in range(0, len(tokens), size):
        index = torch.arange(start, min(start + size, len(tokens)), device=tokens.response_ids.device)
        chunk = tokens.rows(index)
        width = chunk.response_ids.shape[1]
        with player.compute.autocast():
            logits, hidden = model(chunk)
        logprobs[index, :width], entropy[index, :width] = response_logprobs(logits, chunk, temperature)
        if with_values:
            values[index, :width] = player.policy.values(hidden, chunk.mask)
        if start < recorded:
            ids, best = _likeliest(log_distribution(logits[: recorded - start], temperature), shape[1])
            top_ids.append(ids)
            top_logprobs.append(best)
        if keep:
            distributions.append(_widen(log_distribution(logits, temperature), shape[1]))
    return _Reading(
        logprobs, entropy, values if with_values else None, Alternatives(torch.cat(top_ids), torch.cat(top_logprobs)), distributions
    )


def _likeliest(distribution: Tensor, width: int) -> tuple[Tensor, Tensor]:
    best = distribution.topk(min(TOP, distribution.shape[-1]), dim=-1)
    return _widen(best.indices, width).cpu(), _widen(best.values, width).cpu()


def _widen(x: Tensor, width: int) -> Tensor:
    """(b, t, n) to (b, width, n), zeros added."""
    return torch.nn.functional.pad(x, (0, 0, 0, width - x.shape[1]))


def _kl(estimator: str, policy: _Reading, reference: _Reading) -> Tensor:
    if estimator == "full":
        pairs = zip(policy.distributions, reference.distributions, strict=True)
        return torch.cat([full_kl(ours, theirs) for ours, theirs in pairs])
    return kl_per_token(policy.logprobs, reference.logprobs, estimator)


def _assemble(
    player: Player,
    prompts: PromptBatch,
    tokens: TokenBatch,
    responses: list[str],
    stopped: Tensor,
    scores: Scores,
    policy: _Reading,
    reference: _Reading,
    kl: Tensor,
    kl_coef: float,
    recorded: int,
) -> Rollout:
    settings, mask = player.config.ppo, tokens.mask
    charged = kl_coef if settings.kl_placement == "reward" else 0.0
    rewards = shape_rewards(kl, scores.shaped.to(kl.device), mask, charged)
    if settings.whiten_rewards:
        rewards = scale_to_unit_variance(rewards, mask)
    assert policy.values is not None
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
