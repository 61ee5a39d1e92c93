"""Several reward models whose scores become one."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_studio.config import EnsembleReward, short_name
from rlhf_studio.engine.rewards.episodes import Answer, Episodes, worst_reading
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModels, RewardModelScorer, load_scorer
from rlhf_studio.engine.rewards.registry import BuildContext, scorer


def combine(scores: Tensor, how: str, std_weight: float) -> Tensor:
    """One score per response from those of k models.

        mean: m = Σ s_i / k      minimum: min s_i      mean_minus_std: m − std_weight · sqrt(Σ (s_i − m)² / k)

    Args:
        scores: (k, B).

    Returns:
        (B,) scores.

    Source: Coste et al. 2023, arXiv:2310.02743, who take off the variance; here it is the standard deviation, in score units.
    """
    if how == "minimum":
        return scores.amin(dim=0)
    mean = scores.mean(dim=0)
    return mean if how == "mean" else mean - std_weight * scores.std(dim=0, correction=0)


class Ensemble(RewardModels):
    """Asks every model and combines their answers."""

    def __init__(self, members: list[RewardModelScorer], settings: EnsembleReward):
        super().__init__(members)
        self._settings = settings
        self._names = member_names(settings.model_names())

    def __call__(self, episodes: Episodes) -> Answer:
        """The combined scores, and each model's own."""
        answers = [member.answer(episodes) for member in self.models]
        scores = torch.stack([answer.scores for answer in answers])
        combined = combine(scores, self._settings.combine, self._settings.std_weight)
        members = dict(zip(self._names, scores, strict=True)) if self._settings.member_curves else {}
        return Answer(combined, members, worst_reading(answer.reading for answer in answers))


@scorer(EnsembleReward)
def build(settings: EnsembleReward, context: BuildContext) -> Ensemble:
    """Loads every model."""
    return Ensemble([load_scorer(settings, name, context) for name in settings.model_names()], settings)


def member_names(models: list[str]) -> list[str]:
    """The last part of each model's name, with its number where two would be the same."""
    short = [short_name(model) for model in models]
    return [name if short.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(short, start=1)]
