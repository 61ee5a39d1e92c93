"""A reward that people give: the run asks for ratings on the Feedback page, and waits."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from rlhf_studio.config.base import setting
from rlhf_studio.config.reward_base import Component


class HumanReward(Component):
    """People rate each response on the Feedback page, and the run waits for them. One rating may take half a minute: use small batches."""

    title = "Ask people"
    group = "Your own"
    asks_people = True
    one_per_line = ("guidelines",)
    used_when = {"fallback_score": ("fallback", "number")}

    kind: Literal["human"] = "human"
    guidelines: str = setting(
        "", "Guidelines", "What makes a response good; people can read it beside each response.", level="basic", max_length=20_000
    )
    points: int = setting(
        5, "Highest rating", "People rate from 1, the worst, to this number, the best.", level="basic", unit="points", ge=2, le=9
    )
    lowest: float = setting(-1.0, "Score of the lowest rating", "What a rating of 1 earns.", level="basic", ge=-1000, le=1000)
    highest: float = setting(
        1.0, "Score of the highest rating", "What the best rating earns; the ratings between are spread evenly.", level="basic",
        ge=-1000, le=1000,
    )  # fmt: skip
    raters: int = setting(
        1, "Raters for each response", "How many different people rate each response; the score is their mean.", level="basic",
        unit="people", ge=1, le=100,
    )  # fmt: skip
    time_limit: float = setting(
        60.0, "Time limit", "Longest time that the run waits for the ratings of one step. Pauses do not count.", level="basic",
        unit="minutes", gt=0, le=43_200,
    )  # fmt: skip
    fallback: Literal["stop", "skip", "number"] = setting(
        "stop", "When the time is over",
        "stop: the run saves and stops; a resume asks only for what is missing. skip: nothing is learned in this step. number: what was "
        "not rated gets the score below.",
        level="basic",
    )  # fmt: skip
    fallback_score: float = setting(
        0.0, "Score without a rating", "What a response earns that nobody has rated in time.", level="basic", ge=-1000, le=1000
    )

    @model_validator(mode="after")
    def _scale_goes_upwards(self) -> HumanReward:
        if self.highest <= self.lowest:
            raise ValueError(f"highest: {self.highest:g} must be above lowest {self.lowest:g}")
        return self

    def score_of(self, rating: float) -> float:
        """The score of a rating, or of a mean of ratings: 1 gives ``lowest``, ``points`` gives ``highest``, straight between."""
        return self.lowest + (rating - 1) / (self.points - 1) * (self.highest - self.lowest)

    def described(self) -> str:
        """Who scores."""
        return "people's ratings"
