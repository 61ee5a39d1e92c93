"""Completions for a list of prompts, in batches, from any model: what ``generate`` writes into a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.loop.prompts import batch_of, prepare_typed
from rlhf_studio.engine.rewards.scorer import Scorer
from rlhf_studio.engine.stages.evaluating.answering import sample, settings_of
from rlhf_studio.engine.stages.evaluating.loading import Policies
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.prompts import Prompts
from rlhf_studio.inputs.prompts.prepare import Prepared
from rlhf_studio.language import S_
from rlhf_studio.runs.evaluation.policies import PolicySource

ROWS = 64
"""Completions that are sampled at the same time."""


@dataclass(frozen=True)
class Completion:
    """One completion: ``prompt`` is the prompt as the policy read it, ``draw`` which of its completions this is, from 0."""

    prompt: str
    completion: str
    draw: int
    length: int
    stopped: bool


@dataclass(frozen=True)
class Completing:
    """Completions in the order of the prompts, and notes about the prompts for people, one sentence each.

    Reading ``rows`` raises NonFiniteError.
    """

    rows: Iterator[Completion]
    notes: list[str]


def complete(
    source: PolicySource, prompts: Prompts, config: RunConfig, report: OnProgress, *, samples: int, greedy: bool, as_read: bool
) -> Completing:
    """``samples`` completions of each prompt. No prompt is left out for its length: long ones are cut.

    ``config`` gives model settings, data, sampling, device and seed. Raises :class:`ConfigError` and :class:`PromptsError`.
    """
    settings = settings_of(config.generation, greedy=greedy)
    config = config.model_copy(update={"generation": settings})
    compute = choose_compute(config)
    policies = Policies(config, (source.path, source.revision), compute, Scorer(config.reward, []), report)
    policies.load_all([source], 0)
    loaded = policies.get(source)
    room = loaded.longest - config.generation.response_length
    if room < 1:
        limit = S_(f"{source.name} reads at most {loaded.longest:,} tokens, prompt and response together")
        raise ConfigError([Problem("generation.response_length", f"{limit}; take a shorter response")])
    report("Encoding the prompts", None)
    most = min(config.data.max_prompt_tokens, room)
    prepared, data = prepare_typed(prompts, config.data, loaded.models.tokenizer, most, as_read=as_read)
    return Completing(_completions(loaded.models, prepared, config.engine.seed, samples, report), prepared.notes(data))


def _completions(models: Models, prepared: Prepared, seed: int, samples: int, report: OnProgress) -> Iterator[Completion]:
    size = max(1, ROWS // samples)
    for number, start in enumerate(range(0, len(prepared.ids), size)):
        indices = list(range(start, min(start + size, len(prepared.ids))))
        report(f"Answering {len(prepared.ids):,} prompts", start / len(prepared.ids))
        sampled = sample(models, batch_of(prepared, indices, models.pad_id).repeat(samples), seed * 1_000_003 + number)
        lengths = sampled.tokens.lengths.tolist()
        for row, text in enumerate(sampled.texts):
            yield Completion(prepared.texts[indices[row // samples]], text, row % samples, lengths[row], bool(sampled.stopped[row]))
