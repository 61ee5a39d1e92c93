"""A component at work: its scores, the check that they are numbers, and errors that name the component and the text."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlhf_studio.engine.rewards.episodes import Answer, Episodes, Source
from rlhf_studio.engine.rewards.errors import ComponentError, NotRated, RewardError, StepSkipped, quoted
from rlhf_studio.engine.rewards.kinds.human import HumanRatings
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModels, RewardModelScorer
from rlhf_studio.language import S_


@dataclass(frozen=True)
class Component:
    """A component at work, with the name and weight under which its scores are kept."""

    name: str
    weight: float
    source: Source

    @property
    def models(self) -> list[RewardModelScorer]:
        """The reward models that it asks."""
        return self.source.models if isinstance(self.source, RewardModels) else []

    @property
    def people(self) -> HumanRatings | None:
        """The people whom it asks."""
        return self.source if isinstance(self.source, HumanRatings) else None

    def answer(self, episodes: Episodes) -> Answer:
        """Scores before the weight. Raises :class:`RewardError` for anything but B finite numbers."""
        try:
            answer = self.source(episodes.copied())
        except NotRated as error:
            raise StepSkipped(f"reward component {self.name}: {error}") from error
        except ComponentError as error:
            raise RewardError(f"reward component {self.name}: {error}{_what_was_scored(episodes, error.row)}") from error
        if answer.early is not None and not bool(answer.early.isfinite().all()):
            row = int((~answer.early.isfinite()).any(dim=1).nonzero()[0])
            raise RewardError(f"reward component {self.name} gave steps of a response that are too large{_what_was_scored(episodes, row)}")
        bad = [row for row, value in enumerate(answer.scores.tolist()) if not math.isfinite(value)]
        if bad:
            raise RewardError(f"reward component {self.name} gave {answer.scores[bad[0]].item()}{_what_was_scored(episodes, bad[0])}")
        return answer


def _what_was_scored(episodes: Episodes, row: int | None) -> str:
    """The end of an error's sentence: the prompt and response of ``row``; for a whole batch its size and its first prompt."""
    if row is not None:
        return S_(f" for the prompt {quoted(episodes.prompts[row])} and the response {quoted(episodes.responses[row])}")
    count = len(episodes.responses)
    what = "response" if count == 1 else S_(f"batch of {count} responses, the first")
    return S_(f"; it was scoring the {what} to the prompt {quoted(episodes.prompts[0])}")
