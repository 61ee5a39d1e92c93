"""The scale and spread of a reward before any run: its scores for the model's own answers, or for the prompts' own texts.

PPO learns from differences between scores: a reward that gives all answers the same score teaches nothing, whatever the other settings.
"""

from __future__ import annotations

import math
from typing import Any

from rlhf_studio.analysis.doctor.run_data import NO_SPREAD
from rlhf_studio.config import Permissions, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import ComponentError, RewardError
from rlhf_studio.engine.rewards.scorer import build_scorer
from rlhf_studio.engine.stages.evaluating.completing import complete
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.prompts import Prompts, read_prompts
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.prepare import chat_of
from rlhf_studio.jobs.scoring.one_text import TextToScore, count_response_tokens
from rlhf_studio.language import S_
from rlhf_studio.runs.evaluation.policies import PolicySource

TEXTS = 12
"""Prompts that are answered: few enough to wait for, enough to see whether scores differ."""
LOOKED_AT = 200
"""Rows of the data among which they are."""
MOST_TOKENS = 32
"""Of an answer."""


def measure_spread(config: RunConfig, why_not: str, permissions: Permissions, report: OnProgress) -> dict[str, Any]:
    """Scores of the model's own answers to the first prompts; with ``why_not``, of those prompts' texts instead, read as answers.

    Gives ``sentence`` (what was scored), ``verdict`` (what follows), ``mean``, ``std``, ``least``, ``most``, ``notes``, and ``rows``:
    ``prompt``, ``response`` and ``score``, the weighted sum of all components before scaling and penalties.
    Raises :class:`ConfigError`, and :class:`ComponentError` where a component cannot score.
    """
    try:
        prompts = read_prompts(config.data, limit=LOOKED_AT)
        prompts = Prompts(prompts.rows[:TEXTS], prompts.left_out, prompts.columns, prompts.has_references)
        episodes, notes = _texts(config, prompts) if why_not else _answers(config, prompts, report)
        scorer = build_scorer(config.reward, choose_compute(config), report, permissions)
        report("Scoring", None)
        scores = [float(score) for score in scorer.read(episodes).sum]
    except PromptsError as error:
        raise ConfigError([Problem(error.field, error.message)]) from error
    except RewardError as error:
        raise ComponentError(str(error)) from error
    if not all(map(math.isfinite, scores)):
        raise ComponentError("a score is not a finite number: PPO could not learn from it")
    mean = sum(scores) / len(scores)
    std = math.sqrt(sum((score - mean) ** 2 for score in scores) / max(1, len(scores) - 1))
    rows = [
        {"prompt": prompt, "response": response, "score": score}
        for prompt, response, score in zip([""] * len(scores) if why_not else prompts.texts, episodes.responses, scores, strict=True)
    ]
    figures = {"mean": mean, "std": std, "least": min(scores), "most": max(scores)}
    said = {"sentence": _sentence(config, len(rows), why_not), "verdict": verdict(scores, std, answers=not why_not)}
    return {**figures, "rows": rows, "notes": notes, **said}


def _answers(config: RunConfig, prompts: Prompts, report: OnProgress) -> tuple[Episodes, list[str]]:
    """The model's answers to the prompts, sampled as in the run, but shorter."""
    length = min(MOST_TOKENS, config.generation.response_length)
    generation = config.generation.model_copy(update={"response_length": length, "response_length_min": 0})
    source = PolicySource("the model", "model", config.model.policy, config.model.revision)
    own = config.model_copy(update={"generation": generation})
    answered = complete(source, prompts, own, report, samples=1, greedy=False, as_read=False)
    rows = list(answered.rows)
    return Episodes(
        [row.prompt for row in rows],
        [row.completion for row in rows],
        [row.stopped for row in rows],
        [row.length for row in rows],
        prompts.references,
        [chat_of(row, config.data.system_text) for row in prompts.rows] if config.data.chat_template else None,
    ), answered.notes


def _texts(config: RunConfig, prompts: Prompts) -> tuple[Episodes, list[str]]:
    """The prompts' texts as answers to nothing. Raises :class:`ConfigError` where a component needs tokens that nobody can count."""
    counts, texts = [], prompts.texts
    for text in texts:
        count, uncounted = count_response_tokens(config, TextToScore("", text))
        if count is None and any(component.counts_tokens for component in config.reward.components):
            raise ConfigError([Problem("reward.components", uncounted)])
        counts.append(count or 0)
    return Episodes([""] * len(texts), texts, [True] * len(texts), counts, prompts.references), []


def _sentence(config: RunConfig, count: int, why_not: str) -> str:
    if why_not:
        return S_(f"Scores of the texts of {count} of your prompts, read as answers: {why_not}.")
    length = min(MOST_TOKENS, config.generation.response_length)
    return S_(f"Scores of the model's own answers to {count} of your prompts, of {length} tokens at most.")


def verdict(scores: list[float], std: float, *, answers: bool) -> str:
    """What a run could learn from these scores, where they are of the model's own ``answers``; else only whether they differ."""
    same = std <= NO_SPREAD * max(1.0, max(abs(score) for score in scores))
    if not answers:
        told = S_("These texts all get the same score") if same else S_("The reward tells these texts apart")
        return S_(f"{told}; what it gives to answers may be another thing.")
    if same:
        return S_("All texts get the same score: from this reward nothing can be learned. Look at its settings.")
    if len(set(scores)) <= 2 and len(scores) > 4:
        rare = min(scores.count(min(scores)), scores.count(max(scores)))
        return S_(f"There are two scores only, and {rare} of {len(scores)} texts get the rarer one: it is what the model can learn from.")
    return S_("The scores differ: there is something to learn from.")
