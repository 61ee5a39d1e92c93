"""One policy's answer to one prompt: a stream of events, one for each token, with what the reference says of it.

Random numbers, sampling and scoring are the engine's own. A seed gives the answer that :func:`rlhf_studio.engine.loop.generate.generate`
gives to this prompt alone with a generator of that seed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.loop.generate import decode_responses, ends_with_stop
from rlhf_studio.engine.loop.phases import episodes_of
from rlhf_studio.engine.loop.prompts import batch_of, prepare_typed
from rlhf_studio.engine.models.forward import TOP_K
from rlhf_studio.engine.models.policy import ResponseModel
from rlhf_studio.engine.rewards.episodes import reading_note
from rlhf_studio.engine.rewards.scorer import RewardError
from rlhf_studio.engine.sampling.decode import sampling_steps
from rlhf_studio.engine.text import PieceTable, growing_text
from rlhf_studio.engine.types import PromptBatch, TokenBatch
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.read import Prompts
from rlhf_studio.jobs.talk.loaded import CannotTalk, Talker
from rlhf_studio.language import S_
from rlhf_studio.ppo.kl import full_kl, kl_per_token
from rlhf_studio.ppo.logprobs import log_distribution
from rlhf_studio.ppo.rewards import shape_rewards

Json = dict[str, Any]


@dataclass(frozen=True)
class TypedPrompt:
    """A prompt as a person typed it, and how it is answered.

    Attributes:
        prompt: the text.
        as_read: the text is what the policy reads; else the run's chat template or prompt format, if it uses one, is written around it.
        settings: how to sample. A shortest limit does not count.
        seed: fixes the random numbers.
    """

    prompt: str
    as_read: bool
    settings: GenerationConfig
    seed: int


def answer(talker: Talker, question: TypedPrompt) -> Iterator[Json]:
    """The events ``begin``, ``token`` for each token, and ``end``. Raises :class:`CannotTalk`, NonFiniteError and PromptsError.

    ``begin`` has the text that the policy reads (``prompt``), its length in tokens, β and ``notes``. ``token`` has ``id``, ``piece``,
    ``logprob`` and ``ref_logprob`` with their probabilities (``chance``, ``ref_chance``), ``kl`` (the run's estimator), ``reward`` (what it
    pays for that), ``entropy``, ``value`` (None without one), and the five likeliest tokens of policy and reference as [id, piece,
    probability]. ``end`` has ``response``, ``score`` (the weighted sum of the components, before scaling, clipping and penalties; None
    without one), ``last_reward`` (the last token's reward with that score), ``parts``, ``gold``, ``stopped``, ``length``, ``kl`` (the sum
    of log-probability less reference's), ``no_score`` and ``cut`` (one sentence where a reward model read only the end of the text).
    """
    models = talker.models
    prompts, notes = read_prompt(talker, question)
    read = {"prompt": prompts.texts[0], "prompt_tokens": prompts.ids.shape[1], "notes": [*notes, *talker.notes]}
    yield {"event": "begin", **read, "kl_coef": talker.kl_coef, "kl_estimator": models.config.ppo.kl_estimator}
    sampled = yield from _tokens(talker, question, prompts)
    yield {"event": "end", **_scored(talker, prompts, *sampled)}


def read_prompt(talker: Talker, question: TypedPrompt) -> tuple[PromptBatch, list[str]]:
    """The prompt as the run's own prompts are prepared, and notes for people. Raises :class:`CannotTalk` and PromptsError.

    It is cut to the most tokens that the run reads and that leave room for the response.
    """
    models = talker.models
    most = models.config.data.max_prompt_tokens
    if talker.max_positions is not None:
        most = min(most, talker.max_positions - question.settings.response_length)
        if most < 1:
            limit = S_(f"This model reads at most {talker.max_positions:,} tokens, prompt and response together")
            raise CannotTalk(f"{limit}; take a shorter response.")
    typed = Prompts([Prompt(1, question.prompt)], Counter())
    prepared, data = prepare_typed(typed, models.config.data, models.tokenizer, most, as_read=question.as_read)
    notes = []
    if prepared.lengths[0] > most:
        side = "end" if data.overlong == "cut_right" else "beginning"
        notes.append(S_(f"The prompt has {prepared.lengths[0]:,} tokens and {most:,} are read, so its {side} was left out."))
    batch = batch_of(prepared, [0], models.pad_id)
    device = models.compute.device
    return replace(batch, ids=batch.ids.to(device), mask=batch.mask.to(device)), notes


def _tokens(talker: Talker, question: TypedPrompt, prompts: PromptBatch) -> Generator[Json, None, tuple[TokenBatch, float, float]]:
    """A ``token`` event for each token; returns the tokens, the sum of log-probability less reference's, and the last token's KL."""
    models, settings = talker.models, question.settings
    generator = torch.Generator(device=models.compute.device).manual_seed(question.seed)
    uniforms = torch.rand((1, settings.response_length), generator=generator, device=models.compute.device, dtype=torch.float64)
    pieces, table = growing_text(models.tokenizer), PieceTable(models.tokenizer)
    for token in prompts.ids[0].tolist():
        pieces.add(token)
    kl_sum, last_kl = 0.0, math.nan
    with models.reference.active() as reference, models.policy.merged():
        reader = _Reader(reference, prompts.ids.shape[1] + settings.response_length, settings.temperature)
        rows = (prompts.ids, prompts.mask, settings)
        steps = sampling_steps(models.policy, *rows, uniforms=uniforms, stop_ids=models.stop_ids, pad_id=models.pad_id)
        unread = prompts.ids
        while True:
            # The other side takes its turn between two tokens: what belongs to the whole thread holds for one token only.
            torch.set_num_threads(talker.threads)
            try:
                with models.compute.autocast():
                    drawn = next(steps)
            except StopIteration as end:
                return end.value[0], kl_sum, last_kl
            if not math.isfinite(float(drawn.logprobs)):
                continue  # the next step raises NonFiniteError
            policy_logprobs = drawn.shifted_logits - drawn.log_total
            with models.compute.autocast():
                ref_logprobs = reader.read(unread)
            unread = drawn.tokens[:, None]
            event = _event(talker, drawn, policy_logprobs, ref_logprobs, table)
            kl_sum += float(drawn.logprobs) - float(ref_logprobs[0, drawn.tokens])
            last_kl = math.nan if event["kl"] is None else event["kl"]
            yield {**event, "piece": pieces.add(event["id"])}


class _Reader:
    """The reference, reading along: one row, token by token, with its own key-value cache."""

    def __init__(self, model: ResponseModel, most_tokens: int, temperature: float):
        self._model, self._temperature = model, temperature
        self._cache = model.new_cache(most_tokens)
        self._ids: Tensor | None = None

    @torch.no_grad()
    def read(self, ids: Tensor) -> Tensor:
        """(1, V) log-probabilities at the sampling temperature of the token after ``ids`` (1, L), the tokens that it has not read yet."""
        self._ids = ids if self._ids is None else torch.cat([self._ids, ids], dim=1)
        attention = torch.ones_like(self._ids)
        positions = self._model.position_scheme(self._ids, attention.bool())[:, -ids.shape[1] :]
        logits, _ = self._model.next_logits(ids, attention, positions, self._cache)
        return log_distribution(logits, self._temperature)


def _event(talker: Talker, drawn: Any, policy_logprobs: Tensor, ref_logprobs: Tensor, table: PieceTable) -> Json:
    token = int(drawn.tokens)
    estimator = talker.models.config.ppo.kl_estimator
    ref_logprob = ref_logprobs[:, token]
    kl = full_kl(policy_logprobs, ref_logprobs) if estimator == "full" else kl_per_token(drawn.logprobs, ref_logprob, estimator)
    return {
        "event": "token",
        "id": token,
        "logprob": finite(drawn.logprobs),
        "chance": finite(drawn.logprobs.exp()),
        "ref_logprob": finite(ref_logprob),
        "ref_chance": finite(ref_logprob.exp()),
        "kl": finite(kl),
        "reward": _reward(talker, float(kl), 0.0),
        "entropy": finite(drawn.entropy),
        "value": finite(drawn.values) if talker.has_values else None,
        "top": _likeliest(policy_logprobs, table),
        "ref_top": _likeliest(ref_logprobs, table),
    }


def _reward(talker: Talker, kl: float, score: float) -> float | None:
    """The reward of one token, the last one's with the score; None when its KL is not finite."""
    alone = torch.ones((1, 1), dtype=torch.float64)
    return finite(shape_rewards(kl * alone, score * alone[0], alone.bool(), talker.kl_coef))


def _likeliest(logprobs: Tensor, table: PieceTable) -> list[list[Any]]:
    best = logprobs[0].topk(min(TOP_K, logprobs.shape[1]))
    ids = best.indices.tolist()
    pieces = table(set(ids))
    return [[token, pieces[token], finite(value)] for token, value in zip(ids, best.values.exp().tolist(), strict=True)]


def _scored(talker: Talker, prompts: PromptBatch, tokens: TokenBatch, kl_sum: float, last_kl: float) -> Json:
    """What the rewards say of the answer. A component that fails takes the score away, not the answer."""
    models = talker.models
    stopped = ends_with_stop(tokens, models.stop_ids)
    responses = decode_responses(models, tokens)
    episodes = episodes_of(prompts, tokens, responses, stopped)
    parts, problem, cut = {}, talker.no_score, ""
    try:
        reading = models.scorer.read(episodes)
        parts, cut = {name: float(part[0]) for name, part in reading.weighted.items()}, reading_note(reading.reading, "The reward")
    except RewardError as error:
        problem = S_(f"There is no score: {error}")
    gold = models.scorer.gold(episodes)
    score = finite(sum(parts.values())) if parts else None
    return {
        "response": responses[0],
        "score": score,
        "last_reward": _reward(talker, last_kl, score or 0.0),
        "parts": {name: finite(value) for name, value in parts.items()},
        "gold": None if gold is None else finite(gold[0]),
        "stopped": bool(stopped[0]),
        "length": int(tokens.lengths[0]),
        "kl": finite(kl_sum),
        "no_score": problem,
        "cut": cut,
    }


def finite(value: Any) -> float | None:
    """A number as JSON can carry it: None for one that is not finite."""
    number = float(value)
    return number if math.isfinite(number) else None


__all__ = ["CannotTalk", "PromptsError", "TypedPrompt", "answer", "finite", "read_prompt"]
