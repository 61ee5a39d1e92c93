"""The score of a response: the weighted sum of its components, then scaling, clipping and penalties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlhf_studio.child_process.line_process import LineProcess
from rlhf_studio.config import NOTHING_ALLOWED, Permissions, RewardConfig
from rlhf_studio.config.base import free_name
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.ranks import ONE_RANK, Ranks
from rlhf_studio.engine.rewards.component import Component
from rlhf_studio.engine.rewards.episodes import Answer, Episodes, worst_reading
from rlhf_studio.engine.rewards.errors import RewardError
from rlhf_studio.engine.rewards.kinds.human import HumanRatings
from rlhf_studio.engine.rewards.kinds.python_function import PythonFunction
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer
from rlhf_studio.engine.rewards.registry import BuildContext, build_source
from rlhf_studio.engine.types import OnProgress, Scores
from rlhf_studio.inputs.world.gold import gold_score
from rlhf_studio.ppo.rewards import RunningMoments, scale_scores

__all__ = ["Episodes", "RewardError", "Scorer", "build_scorer", "component_names", "shaped_scores"]


def build_scorer(
    settings: RewardConfig,
    compute: Compute,
    report: OnProgress,
    permissions: Permissions = NOTHING_ALLOWED,
    begun: Mapping[int, LineProcess] = MappingProxyType({}),
) -> Scorer:
    """Load what the settings name. Raises :class:`ConfigError` naming the setting that keeps a component from working.

    ``begun``: processes of components that were started before, by number.
    """
    components = []
    for number, (name, part) in enumerate(zip(component_names(settings), settings.components, strict=True)):
        context = BuildContext(f"reward.components.{number}", compute, report, permissions, begun.get(number))
        components.append(Component(name, part.weight, build_source(part, context)))
    return Scorer(settings, components, compute.ranks)


@dataclass(frozen=True)
class Parts:
    """What the components gave to B episodes, before their sum is shaped.

    Attributes:
        weighted: score (B,) of each component by name, times its weight.
        members: of each component that is an ensemble the scores of its k models, (k, B), times its weight.
        reading: (B, 2) of the component that lost most of each text, see :class:`Answer`; None where all read their texts whole.
    """

    weighted: dict[str, Tensor]
    members: dict[str, Tensor]
    reading: Tensor | None

    @property
    def sum(self) -> Tensor:
        """The scores (B,)."""
        return torch.stack(list(self.weighted.values())).sum(dim=0)


class Scorer:
    """The weighted sum of ``components``, shaped as ``settings`` say.

    Attributes:
        moments: of all scores so far; the only state, and belongs into a checkpoint.
    """

    def __init__(self, settings: RewardConfig, components: Sequence[Component], ranks: Ranks = ONE_RANK):
        self._settings, self.components, self._ranks = settings, list(components), ranks
        self.moments = RunningMoments()

    def __call__(self, episodes: Episodes) -> Scores:
        """Score a batch; with several ranks each scores its own rows.

        Raises :class:`RewardError`, with the moments untouched, when a component gives anything but finite numbers, here or on
        another rank.
        """
        answers = self._answers_of_all_ranks(episodes)
        parts = self._weighted(answers)
        members = {
            f"{component.name}: {name}": component.weight * scores
            for component in self.components
            for name, scores in answers[component.name].members.items()
        }
        scores = self.shape(torch.stack(list(parts.values())).sum(dim=0), episodes)
        reading = worst_reading(answer.reading for answer in answers.values())
        early = self._early(answers, episodes)
        return replace(scores, parts=parts, gold=self.gold(episodes), members=members, reading=reading, early=early)

    def shape(self, raw: Tensor, episodes: Episodes) -> Scores:
        """Scores (B,) of the episodes, scaled by the moments of all scores so far, clipped, less penalties; without parts and gold."""
        if self._settings.scaling != "none":
            self.moments.update(raw)
        return Scores(raw, {}, shaped_scores(raw, self._settings, self.moments, episodes), None)

    def parts(self, episodes: Episodes) -> dict[str, Tensor]:
        """Weighted score (B,) of each component, without touching the running moments."""
        return self.read(episodes).weighted

    def read(self, episodes: Episodes) -> Parts:
        """As :meth:`parts`, with the models of ensembles, and with how much of each text was read."""
        answers = self._answers(episodes)
        members = {part.name: [part.weight * scores for scores in answers[part.name].members.values()] for part in self.components}
        several = {name: torch.stack(scores) for name, scores in members.items() if scores}
        return Parts(self._weighted(answers), several, worst_reading(answer.reading for answer in answers.values()))

    def reward_models(self) -> list[tuple[str, RewardModelScorer]]:
        """Every reward model, with the setting that names its component."""
        return [(f"reward.components.{index}", model) for index, part in enumerate(self.components) for model in part.models]

    def people(self) -> list[HumanRatings]:
        """Those components that ask people."""
        return [part.people for part in self.components if part.people is not None]

    def _answers(self, episodes: Episodes) -> dict[str, Answer]:
        return {component.name: component.answer(episodes) for component in self.components}

    def _answers_of_all_ranks(self, episodes: Episodes) -> dict[str, Answer]:
        if self._ranks.size == 1:
            return self._answers(episodes)
        try:
            mine = self._answers(episodes.rows(self._ranks.rows(len(episodes.prompts))))
        except RewardError as error:
            self._ranks.raise_together(str(error), RewardError)
            raise
        self._ranks.raise_together("", RewardError)
        gather = self._ranks.gather
        return {
            name: Answer(
                gather(answer.scores),
                {member: gather(scores) for member, scores in answer.members.items()},
                None if answer.reading is None else gather(answer.reading),
                None if answer.early is None else gather(pad(answer.early, (0, max(episodes.lengths) - answer.early.shape[1]))),
            )
            for name, answer in mine.items()
        }

    def _weighted(self, answers: dict[str, Answer]) -> dict[str, Tensor]:
        return {component.name: component.weight * answers[component.name].scores for component in self.components}

    def _early(self, answers: dict[str, Answer], episodes: Episodes) -> Tensor | None:
        """(B, T) what tokens before the last earn, on the scale of the shaped scores; None when no component gives such scores.

        Nothing of it is left where a penalty replaces the score of a response without an end.
        """
        given = [component.weight * early for component in self.components if (early := answers[component.name].early) is not None]
        if not given:
            return None
        early = torch.stack(given).sum(dim=0)
        if self._settings.scaling != "none" and self.moments.std > 0:
            early = early / self.moments.std
        replaced = self._settings.missing_eos_penalty and self._settings.missing_eos_mode == "replace"
        return early * torch.tensor(episodes.stopped).float()[:, None] if replaced else early

    @property
    def reads_tokens(self) -> bool:
        """Whether a component can score the steps inside a response, for which it needs the tokens."""
        return any(isinstance(component.source, PythonFunction) for component in self.components)

    def gold(self, episodes: Episodes) -> Tensor | None:
        """The hidden second scorer (B,), or None when there is none."""
        if self._settings.gold == "none":
            return None
        pairs = zip(episodes.prompts, episodes.responses, strict=True)
        return torch.tensor([gold_score(prompt, response) for prompt, response in pairs], dtype=torch.float32)


def shaped_scores(raw: Tensor, settings: RewardConfig, moments: RunningMoments, episodes: Episodes) -> Tensor:
    """What the last token earns: the sum scaled and clipped, less the length penalty, then the penalty for a missing end.

        s = clip(scale(raw)) − length_penalty · tokens
        where the stop token is missing:  subtract: s − penalty      replace: −penalty

    Args:
        raw: (B,) weighted sum.
        moments: of all sums so far, these included.

    Returns:
        (B,) scores.

    Source: Ziegler et al. 2019 and Huang et al. 2024 replace the score of a text without an end; TRL subtracts.
    """
    shaped = scale_scores(raw, moments, settings.scaling, settings.score_clip)
    if settings.length_penalty:
        shaped = shaped - settings.length_penalty * torch.tensor(episodes.lengths, dtype=torch.float32)
    if settings.missing_eos_penalty:
        punished = torch.full_like(shaped, -settings.missing_eos_penalty)
        if settings.missing_eos_mode == "subtract":
            punished = punished + shaped
        shaped = torch.where(torch.tensor(episodes.stopped), shaped, punished)
    return shaped


def component_names(settings: RewardConfig) -> list[str]:
    """One name per component: its own, or its kind; a number keeps doubles apart."""
    names: list[str] = []
    for component in settings.components:
        names.append(free_name(component.name or component.kind, names))
    return names
