"""The score of a response: the weighted sum of its components, then scaling, clipping and the no-end penalty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import regex
import torch
from torch import Tensor

from rlhf_studio.config import (
    KeywordReward,
    LengthReward,
    RegexReward,
    RepetitionReward,
    RewardComponent,
    RewardConfig,
    RewardModelReward,
)
from rlhf_studio.config_io import ConfigError, Problem
from rlhf_studio.engine.device import Compute
from rlhf_studio.engine.loading import Report, load_reward_model
from rlhf_studio.engine.rewards.reward_model import RewardModelScorer
from rlhf_studio.engine.rewards.rules import Rule, RuleError, keyword_rule, length_rule, regex_rule, repetition_rule
from rlhf_studio.engine.types import Scores
from rlhf_studio.ppo.rewards import RunningMoments, scale_scores
from rlhf_studio.world.gold import gold_score


class RewardError(RuntimeError):
    """A component gave something that is not a score; the message names the component, the prompt and the response."""


@dataclass(frozen=True)
class Episodes:
    """What a reward component may look at: B texts, whether each ended with its stop token, and its length in tokens.

    ``references`` holds a reference text per prompt when ``data.reference_column`` names a column, else None.
    """

    prompts: list[str]
    responses: list[str]
    stopped: list[bool]
    lengths: list[int]
    references: list[str] | None = None


@dataclass(frozen=True)
class _Component:
    name: str
    weight: float
    score: Callable[[Episodes], Tensor]


class Scorer:
    """Built once per run; ``moments`` is the only state and belongs into a checkpoint."""

    def __init__(self, settings: RewardConfig, compute: Compute, report: Report):
        self._settings = settings
        self.moments = RunningMoments()
        self._components = [
            _Component(name, component.weight, _build(component, f"reward.components.{index}", compute, report))
            for index, (name, component) in enumerate(zip(component_names(settings), settings.components, strict=True))
        ]

    def __call__(self, episodes: Episodes) -> Scores:
        """Score a batch. Raises :class:`RewardError` when a component gives anything but B finite numbers."""
        parts = self.parts(episodes)
        raw = torch.stack(list(parts.values())).sum(dim=0)
        if self._settings.scaling != "none":
            self.moments.update(raw)
        shaped = scale_scores(raw, self.moments, self._settings.scaling, self._settings.score_clip)
        if self._settings.missing_eos_penalty:
            shaped = shaped - self._settings.missing_eos_penalty * (~torch.tensor(episodes.stopped)).float()
        return Scores(raw, parts, shaped, self.gold(episodes))

    def parts(self, episodes: Episodes) -> dict[str, Tensor]:
        """Weighted score (B,) of each component, without touching the running moments."""
        return {component.name: component.weight * _checked(component, episodes) for component in self._components}

    def gold(self, episodes: Episodes) -> Tensor | None:
        """The hidden second scorer (B,), or None when there is none."""
        if self._settings.gold == "none":
            return None
        pairs = zip(episodes.prompts, episodes.responses, strict=True)
        return torch.tensor([gold_score(prompt, response) for prompt, response in pairs], dtype=torch.float32)


def component_names(settings: RewardConfig) -> list[str]:
    """One name per component: its own, or its kind; a number keeps doubles apart."""
    names: list[str] = []
    for component in settings.components:
        name = base = component.name or component.kind
        number = 1
        while name in names:
            number += 1
            name = f"{base} {number}"
        names.append(name)
    return names


def _checked(component: _Component, episodes: Episodes) -> Tensor:
    try:
        scores = component.score(episodes)
    except RuleError as error:
        raise RewardError(f"reward component {component.name}: {error}") from error
    bad = [index for index, value in enumerate(scores.tolist()) if not math.isfinite(value)]
    if bad:
        raise RewardError(
            f"reward component {component.name} gave {scores[bad[0]].item()} for the prompt {episodes.prompts[bad[0]]!r} "
            f"and the response {episodes.responses[bad[0]]!r}"
        )
    return scores


def _build(component: RewardComponent, field: str, compute: Compute, report: Report) -> Callable[[Episodes], Tensor]:
    if isinstance(component, RewardModelReward):
        loaded = load_reward_model(component.model, component.revision, component.label, compute.dtype, report, field)
        scorer = RewardModelScorer(loaded, component, compute)
        return lambda episodes: scorer(episodes.prompts, episodes.responses, episodes.stopped)
    try:
        return _per_text(_rule(component))
    except regex.error as error:
        raise ConfigError([Problem(f"{field}.pattern", f"is not a valid regular expression: {error}")]) from error


def _rule(component: LengthReward | KeywordReward | RegexReward | RepetitionReward) -> Rule:
    if isinstance(component, LengthReward):
        return length_rule(component)
    if isinstance(component, KeywordReward):
        return keyword_rule(component)
    return regex_rule(component) if isinstance(component, RegexReward) else repetition_rule(component)


def _per_text(rule: Rule) -> Callable[[Episodes], Tensor]:
    return lambda episodes: torch.tensor(
        [rule(text, tokens) for text, tokens in zip(episodes.responses, episodes.lengths, strict=True)], dtype=torch.float32
    )
