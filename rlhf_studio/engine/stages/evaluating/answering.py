"""The answers of one policy to a batch of prompts, and their log-probabilities under the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.loop.generate import decode_responses, ends_with_stop, generate
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.loop.phases import exact
from rlhf_studio.engine.loop.prompts import TokenizerEncoder
from rlhf_studio.engine.models.forward import ForwardPass
from rlhf_studio.engine.models.policy import ResponseModel
from rlhf_studio.engine.stages.evaluating.prompts import token_batch
from rlhf_studio.engine.types import PromptBatch, TokenBatch
from rlhf_studio.inputs.examples.pieces import encode_behind
from rlhf_studio.ppo.masking import masked_select

Row = tuple[float, int]
"""Sum of log-probabilities at temperature 1, and how many tokens it is over."""


@dataclass(frozen=True)
class Sampled:
    """The answers of a policy.

    Attributes:
        texts: B texts.
        tokens: their ids.
        stopped: whether each ended with its stop token.
        logprobs: (B, T) of the policy, at the sampling temperature.
    """

    texts: list[str]
    tokens: TokenBatch
    stopped: list[bool]
    logprobs: Tensor


def settings_of(generation: GenerationConfig, *, greedy: bool) -> GenerationConfig:
    """How an evaluation samples: every answer may have the full length. ``greedy`` always takes the likeliest token."""
    changes = {"response_length_min": 0} | ({"top_k": 1, "top_p": 1.0} if greedy else {})
    return generation.model_copy(update=changes)


def sample(models: Models, prompts: PromptBatch, seed: int) -> Sampled:
    """Answer the prompts; the same seed gives every policy the same random numbers. Raises NonFiniteError."""
    generator = torch.Generator(device=models.compute.device).manual_seed(seed)
    tokens, output = generate(models, prompts, models.config.generation, generator)
    output = exact(models, tokens, output, 0)
    return Sampled(decode_responses(models, tokens), tokens, ends_with_stop(tokens, models.stop_ids).tolist(), output.logprobs)


def kl_from_reference(models: Models, sampled: Sampled, *, greedy: bool) -> Tensor:
    """(B,) KL of the policy from the reference over each answer, in nats, at the sampling temperature.

    Sampled answers give the sum of log-probability less reference's, which is right on average. Greedy answers were not drawn from the
    policy, so for them the exact KL of the two distributions is summed over the answer's positions.
    """
    tokens, forward = sampled.tokens, models.forward_pass
    if greedy:
        return _sums(forward.full_kl(models.policy, models.reference, tokens), tokens)
    with models.reference.active() as reference:
        return _sums(sampled.logprobs - forward.run(reference, tokens, 0).logprobs, tokens)


def read(reader: ResponseModel, tokens: TokenBatch, forward: ForwardPass, stopped: Sequence[bool] = ()) -> list[Row]:
    """The log-probability of each response under a model, at temperature 1.

    ``stopped`` says which responses end with a stop token. That token does not count: an answer from a file does not have it.
    """
    logprobs, mask = replace(forward, temperature=1.0).run(reader, tokens, 0).logprobs, tokens.mask.clone()
    for row, ended in enumerate(stopped):
        mask[row, int(tokens.lengths[row]) - 1] &= not ended
    sums = masked_select(logprobs, mask).sum(dim=1).double().tolist()
    return list(zip(sums, mask.sum(dim=1).tolist(), strict=True))


@dataclass(frozen=True)
class TextReader:
    """A model that reads answers of which only the text is known. It encodes them with its own tokenizer.

    Attributes:
        longest: most tokens of prompt and response together that it reads.
    """

    model: ResponseModel
    encoder: TokenizerEncoder
    forward: ForwardPass
    longest: int


def read_texts(by: TextReader, prompts: Sequence[list[int]], texts: Sequence[str]) -> list[Row]:
    """As :func:`read`, for texts behind prompts of token ids. An empty text gives (0, 0), one that is too long with its prompt NaN."""
    ids = [own if text else [] for text, own in zip(texts, encode_behind(texts, by.encoder), strict=True)]
    rows: list[Row] = [(0.0, 0) if not own else (float("nan"), len(own)) for own in ids]
    fitting = [index for index, own in enumerate(ids) if own and len(own) + len(prompts[index]) <= by.longest]
    if fitting:
        tokens = token_batch([prompts[index] for index in fitting], [ids[index] for index in fitting], by.forward.compute.device)
        for index, row in zip(fitting, read(by.model, tokens, by.forward), strict=True):
            rows[index] = row
    return rows


def _sums(values: Tensor, tokens: TokenBatch) -> Tensor:
    return masked_select(values, tokens.mask).sum(dim=1).double().cpu()
