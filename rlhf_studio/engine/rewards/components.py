"""From a component's settings to the component at work, and the check that what it gives are scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import regex
import torch

from rlhf_studio.config import (
    BleuReward,
    EnsembleReward,
    HttpReward,
    KeywordReward,
    LengthReward,
    LexiconReward,
    Permissions,
    PythonReward,
    RegexReward,
    RepetitionReward,
    RewardComponent,
    RewardModelReward,
    RougeReward,
)
from rlhf_studio.config_io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.distributed.ranks import ONE_RANK
from rlhf_studio.engine.models.load_model import load_reward_model
from rlhf_studio.engine.rewards.chats import own_chat
from rlhf_studio.engine.rewards.ensemble import Ensemble, OneModel
from rlhf_studio.engine.rewards.episodes import Answer, Episodes, Source
from rlhf_studio.engine.rewards.errors import ComponentError, RewardError, quoted
from rlhf_studio.engine.rewards.http_scorer import HttpScorer
from rlhf_studio.engine.rewards.lexicon import lexicon_rule
from rlhf_studio.engine.rewards.python_function import PythonFunction
from rlhf_studio.engine.rewards.references import reference_source
from rlhf_studio.engine.rewards.reward_model import RewardModelScorer
from rlhf_studio.engine.rewards.rules import Rule, keyword_rule, length_rule, regex_rule, repetition_rule
from rlhf_studio.engine.types import OnProgress

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Component:
    """A component at work, with the name and weight under which its scores are kept."""

    name: str
    weight: float
    source: Source

    @property
    def models(self) -> list[RewardModelScorer]:
        """The reward models that it asks."""
        return self.source.models if isinstance(self.source, Ensemble | OneModel) else []

    def answer(self, episodes: Episodes) -> Answer:
        """Scores before the weight. Raises :class:`RewardError` for anything but B finite numbers."""
        try:
            answer = self.source(episodes)
        except ComponentError as error:
            raise RewardError(f"reward component {self.name}: {error}{_place(episodes, error.row)}") from error
        bad = [row for row, value in enumerate(answer.scores.tolist()) if not math.isfinite(value)]
        if bad:
            raise RewardError(f"reward component {self.name} gave {answer.scores[bad[0]].item()}{_place(episodes, bad[0])}")
        return answer


def _place(episodes: Episodes, row: int | None) -> str:
    if row is not None:
        return f" for the prompt {quoted(episodes.prompts[row])} and the response {quoted(episodes.responses[row])}"
    count = len(episodes.responses)
    what = "response" if count == 1 else f"batch of {count} responses, the first"
    return f"; it was scoring the {what} to the prompt {quoted(episodes.prompts[0])}"


def build_source(component: RewardComponent, field: str, compute: Compute, report: OnProgress, permissions: Permissions) -> Source:
    """The component at work. Raises :class:`ConfigError` naming the setting (below ``field``) that keeps it from working."""
    if isinstance(component, RewardModelReward):
        return OneModel(_model(component, component.model, f"{field}.model", field, compute, report))
    if isinstance(component, EnsembleReward):
        names = component.model_names()
        return Ensemble([_model(component, name, f"{field}.models", field, compute, report) for name in names], component)
    if isinstance(component, BleuReward | RougeReward):
        return reference_source(component)
    if isinstance(component, PythonReward):
        report(f"Starting the reward function {component.function} of {component.file}", None)
        return PythonFunction(component, permissions, field)
    if isinstance(component, HttpReward):
        return HttpScorer(component, permissions, field)
    try:
        return _per_text(_rule(component))
    except regex.error as error:
        raise ConfigError([Problem(f"{field}.pattern", f"is not a valid regular expression: {error}")]) from error


def _model(
    component: RewardModelReward | EnsembleReward, name: str, model_field: str, field: str, compute: Compute, report: OnProgress
) -> RewardModelScorer:
    own = replace(compute, dtype=DTYPES.get(component.dtype, compute.dtype), ranks=ONE_RANK)
    try:
        loaded = load_reward_model(name, component.revision, component.label, own.dtype, report, field)
    except ConfigError as error:  # an ensemble's setting is called otherwise
        renamed = [model_field if problem.field == f"{field}.model" else problem.field for problem in error.problems]
        raise ConfigError([Problem(place, item.message) for place, item in zip(renamed, error.problems, strict=True)]) from error
    return RewardModelScorer(name, loaded, component, own, own_chat(loaded, name, component, field))


def _rule(component: LengthReward | KeywordReward | LexiconReward | RegexReward | RepetitionReward) -> Rule:
    if isinstance(component, LengthReward):
        return length_rule(component)
    if isinstance(component, KeywordReward):
        return keyword_rule(component)
    if isinstance(component, LexiconReward):
        return lexicon_rule(component)
    return regex_rule(component) if isinstance(component, RegexReward) else repetition_rule(component)


def _per_text(rule: Rule) -> Source:
    def score(episodes: Episodes) -> Answer:
        values = []
        for row, (text, tokens) in enumerate(zip(episodes.responses, episodes.lengths, strict=True)):
            try:
                values.append(rule(text, tokens))
            except ComponentError as error:
                raise ComponentError(str(error), row) from error
        return Answer(torch.tensor(values, dtype=torch.float32))

    return score
