"""Responses that the lesson run's policies are asked to write again: many endings of one beginning, sampled and scored by the engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from rlhf_studio.engine.loop.generate import response_texts
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.sampling.decode import sample_responses
from rlhf_studio.lessons.run import LessonRun


@dataclass(frozen=True, eq=False)
class Endings:
    """N endings of one beginning.

    Attributes:
        ids: what was sampled, without the beginning; the stop token included.
        logprobs: of these tokens under the policy that sampled them, in nats.
        responses: the texts of the whole responses, beginning and ending.
        scores: (N,) float64, of the reward model for each whole response.
        gold: (N,) float64, of the world's own rules.
    """

    ids: list[list[int]]
    logprobs: list[list[float]]
    responses: list[str]
    scores: Tensor
    gold: Tensor


@lru_cache(maxsize=64)
def endings(run: LessonRun, step: int, prompt: str, begun: tuple[int, ...], count: int, seed: int) -> Endings:
    """``count`` endings of a response that has begun with the tokens ``begun``, by the policy after ``step`` (0: the reference).

    A whole response is as long as the run allows. Where ``begun`` ends with the stop token there is nothing to sample: all endings are
    empty. Equal arguments give the same endings. Raises ValueError for a step that there is not, and for a beginning that is too long.
    """
    settings, stop_id = run.config.generation, run.tokenizer.eos_token_id
    left = settings.response_length - len(begun)
    if left < 0:
        raise ValueError(f"a response has at most {settings.response_length} tokens, this one begins with {len(begun)}")
    prompt_ids = run.prompt_ids(prompt)
    ids: list[list[int]] = [[] for _ in range(count)]
    logprobs: list[list[float]] = [[] for _ in range(count)]
    if left and begun[-1:] != (stop_id,):
        inputs = torch.tensor([[*prompt_ids, *begun]]).expand(count, -1).contiguous()
        uniforms = torch.rand(count, settings.response_length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        limits = torch.full((count,), left)
        tokens, output = sample_responses(
            run.policy(step),
            inputs,
            torch.ones_like(inputs, dtype=torch.bool),
            settings,
            uniforms=uniforms,
            stop_ids=(stop_id,),
            pad_id=0,
            limits=limits,
        )
        ids = [row[keep].tolist() for row, keep in zip(tokens.response_ids, tokens.mask, strict=True)]
        logprobs = [row[keep].tolist() for row, keep in zip(output.logprobs, tokens.mask, strict=True)]
    responses = [[*begun, *ending] for ending in ids]
    texts = response_texts(run.tokenizer, run.batch([prompt_ids] * count, responses))
    stopped = [row[-1] == stop_id for row in responses]
    episodes = Episodes([prompt] * count, texts, stopped, [len(row) for row in responses])
    scores = torch.stack(list(run.scorer.parts(episodes).values())).sum(dim=0)
    gold = run.scorer.gold(episodes)
    assert gold is not None  # the world has one
    return Endings(ids, logprobs, texts, scores.double(), gold.double())
