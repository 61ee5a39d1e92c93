"""People's ratings. The engine process connects the function that asks them, because it knows the run and its step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from rlhf_studio.config.reward_human import HumanReward
from rlhf_studio.engine.rewards.episodes import Answer, Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.registry import BuildContext, scorer

AskPeople = Callable[[HumanReward, str, Episodes], Sequence[Sequence[int]]]
"""(settings, where the component stands, B episodes) to the ratings of each, empty for one that nobody rated in time.

Raises :class:`~rlhf_studio.engine.rewards.errors.NotRated` where the step is to be skipped then.
"""


class HumanRatings:
    """The mean of people's ratings, on the scale of scores.

    Attributes:
        ask: asks people and waits; None where there is nobody to ask, outside of a run.
    """

    def __init__(self, settings: HumanReward, field: str):
        self._settings, self._field = settings, field
        self.ask: AskPeople | None = None

    def __call__(self, episodes: Episodes) -> Answer:
        """The scores. Raises :class:`ComponentError`."""
        if self.ask is None:
            raise ComponentError("people give this score while a run waits for them; here is nobody to ask")
        settings = self._settings
        ratings = self.ask(settings, self._field, episodes)
        scores = [settings.score_of(sum(given) / len(given)) if given else settings.fallback_score for given in ratings]
        return Answer(torch.tensor(scores, dtype=torch.float32))


@scorer(HumanReward)
def build(settings: HumanReward, context: BuildContext) -> HumanRatings:
    """Nobody is asked before the first batch."""
    return HumanRatings(settings, context.field)
