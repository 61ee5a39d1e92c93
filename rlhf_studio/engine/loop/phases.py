"""The phases of a step that ask models: sample responses, score them, read them with the reference.

With several ranks each one works on its own episodes; what is returned is the whole batch, the same on all ranks.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlhf_studio.config import PPOConfig
from rlhf_studio.engine.compute.gathering import gather_columns, gather_output, gather_tokens
from rlhf_studio.engine.loop.generate import decode_responses, ends_with_stop, generate, rows_of
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.rewards.scorer import Episodes
from rlhf_studio.engine.text import PieceTable
from rlhf_studio.engine.types import ForwardOutput, NonFiniteError, PromptBatch, ReferencePass, Samples, Scores, TokenBatch
from rlhf_studio.ppo.advantages import (
    Advantages,
    dr_grpo_advantages,
    estimate_advantages,
    gae,
    grpo_advantages,
    reinforce_advantages,
    rloo_advantages,
    whiten,
)
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.ppo.masking import masked_select


def sample(models: Models, prompts: PromptBatch, generator: torch.Generator) -> Samples:
    """One response for each prompt, with the policy's log-probabilities, entropy and values.

    Raises :class:`NonFiniteError` on all ranks when the policy cannot be sampled from.
    """
    ranks, count = models.compute.ranks, len(prompts.texts)
    recorded = min(models.config.engine.record_samples, count)
    own_recorded = _own_recorded(models, count, recorded)
    own_tokens, output = _generate_own(models, prompts, generator, own_recorded)
    output = exact(models, own_tokens, output, own_recorded)
    tokens = gather_tokens(ranks, own_tokens, prompts.ids, prompts.mask)
    policy = gather_output(ranks, output, own_tokens, recorded)
    stopped = ends_with_stop(tokens, models.stop_ids)
    return Samples(prompts, tokens, own_tokens, decode_responses(models, tokens), stopped, policy, recorded)


def read_given(models: Models, prompts: PromptBatch, tokens: TokenBatch, learned: Tensor | None = None) -> Samples:
    """Responses that were drawn elsewhere, with what the policy says of them now, as :func:`sample` gives its own. One process only.

    Args:
        tokens: prompts and responses, on the models' device; every response has a token.
        learned: as in :class:`Samples`.
    """
    recorded = min(models.config.engine.record_samples, len(prompts.texts))
    output = models.forward_pass.run(models.policy, tokens, recorded, critic=models.policy)
    stopped = ends_with_stop(tokens, models.stop_ids)
    return Samples(prompts, tokens, tokens, decode_responses(models, tokens), stopped, output, recorded, learned)


def score(models: Models, samples: Samples) -> Scores:
    """What the reward components give for the samples. Raises :class:`RewardError`, with nothing changed."""
    models.compute.pulse("Scoring")
    episodes = episodes_of(samples.prompts, samples.tokens, samples.responses, samples.stopped)
    if models.scorer.reads_tokens:
        episodes = replace(episodes, pieces=_pieces(models, samples.tokens), logprobs=rows_of(samples.policy.logprobs, samples.tokens.mask))
    return models.scorer(episodes)


def reference_pass(models: Models, samples: Samples) -> ReferencePass:
    """The reference's log-probabilities of the sampled tokens, and the KL of the policy from it."""
    models.compute.pulse("Reference pass")
    own_recorded = _own_recorded(models, len(samples.prompts.texts), samples.recorded)
    with models.reference.active() as reference:
        output = models.forward_pass.run(reference, samples.own_tokens, own_recorded)
    output = gather_output(models.compute.ranks, output, samples.own_tokens, samples.recorded)
    return ReferencePass(output, _kl(models, samples, output))


def advantages_of(
    ppo: PPOConfig, rewards: Tensor, scores: Tensor, values: Tensor | None, mask: Tensor, read: Tensor | None = None
) -> Advantages:
    """What the update learns from, as ``ppo.advantage`` says: against a critic's values, or against other responses.

    Args:
        rewards: (B, T) per token.
        scores: (B,) what the last tokens earn, without the KL.
        values: (B, T) of the critic; None without one.
        mask: (B, T) the tokens that are learned from.
        read: (B, T) all response tokens, where these are more; None: they are the same.
    """
    if values is not None and read is not None and not torch.equal(read, mask):
        return _across_gaps(ppo, rewards, values, mask, read)
    if values is not None:
        return estimate_advantages(rewards, values, mask, ppo.gamma, ppo.lam, whitening=ppo.whiten_advantages)
    advantages = _compared(ppo, rewards, scores, mask)
    return Advantages(advantages, advantages, returns=None, deltas=None)


def _compared(ppo: PPOConfig, rewards: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
    """(B, T) the advantages without a critic."""
    if ppo.advantage == "reinforce":
        return reinforce_advantages(rewards, mask)
    if ppo.advantage == "rloo":
        return rloo_advantages(rewards, mask, ppo.responses_per_prompt)
    of_scores = {"grpo": grpo_advantages, "dr_grpo": dr_grpo_advantages}[ppo.advantage]
    return of_scores(scores, mask, ppo.responses_per_prompt)


def _across_gaps(ppo: PPOConfig, rewards: Tensor, values: Tensor, mask: Tensor, read: Tensor) -> Advantages:
    """Tokens that are read and not learned from have value 0 and earn nothing; credit passes through them. Source: TRL 0.11."""
    advantages, returns, deltas = gae(masked_select(rewards, mask), masked_select(values, mask), read, ppo.gamma, ppo.lam)
    advantages, returns, deltas = masked_select(advantages, mask), masked_select(returns, mask), masked_select(deltas, mask)
    return Advantages(advantages, whiten(advantages, mask) if ppo.whiten_advantages else advantages, returns, deltas)


def episodes_of(prompts: PromptBatch, tokens: TokenBatch, responses: list[str], stopped: Tensor) -> Episodes:
    """The episodes as reward components read them."""
    return Episodes(prompts.texts, responses, stopped.tolist(), tokens.lengths.tolist(), prompts.references, prompts.chats)


def _pieces(models: Models, tokens: TokenBatch) -> list[list[str]]:
    """The text of each response token."""
    ids = rows_of(tokens.response_ids, tokens.mask)
    texts = PieceTable(models.tokenizer)({token for row in ids for token in row})
    return [[texts[token] for token in row] for row in ids]


def _own_recorded(models: Models, count: int, recorded: int) -> int:
    """How many of this rank's ``count`` episodes are among the ``recorded`` first of all."""
    own = models.compute.ranks.rows(count)
    start, stop = int(own.start), int(own.stop)
    return max(min(recorded - start, stop - start), 0)


def _generate_own(models: Models, prompts: PromptBatch, generator: torch.Generator, recorded: int) -> tuple[TokenBatch, ForwardOutput]:
    """This rank's episodes; a failure on one rank is raised on all."""
    ranks = models.compute.ranks
    try:
        generated = generate(models, prompts, models.config.generation, generator, recorded, ranks.rows(len(prompts.texts)))
    except NonFiniteError as error:
        ranks.raise_together(str(error), NonFiniteError)
        raise
    ranks.raise_together("", NonFiniteError)
    return generated


def exact(models: Models, tokens: TokenBatch, output: ForwardOutput, recorded: int) -> ForwardOutput:
    """The numbers of the sampled tokens, rounded as the update will round them; with the values of a critic that has its own trunk.

    In half precision, decoding steps and a full forward pass round differently, by more than PPO's ratio may be off. So the numbers are
    then computed again in one forward pass.
    """
    forward = models.forward_pass
    if models.compute.dtype is not torch.float32:
        return forward.run(models.policy, tokens, recorded, critic=models.policy)
    return output if models.policy.critic is None else replace(output, values=forward.values(models.policy, tokens))


def _kl(models: Models, samples: Samples, reference: ForwardOutput) -> Tensor:
    estimator = models.config.ppo.kl_estimator
    if estimator == "full":
        exact = models.forward_pass.full_kl(models.policy, models.reference, samples.own_tokens)
        return gather_columns(models.compute.ranks, exact, samples.policy.logprobs.shape[1])
    return kl_per_token(samples.policy.logprobs, reference.logprobs, estimator)
