"""What earns reward: the kinds of components (each in a file with its like), and how their sum is shaped."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from rlhf_studio.config.base import Section, setting
from rlhf_studio.config.reward_answer import AnswerReward
from rlhf_studio.config.reward_base import Component, kind_of
from rlhf_studio.config.reward_human import HumanReward
from rlhf_studio.config.reward_judge import JudgeReward
from rlhf_studio.config.reward_models import EnsembleReward, RewardModelReward
from rlhf_studio.config.reward_outside import HttpReward, PythonReward
from rlhf_studio.config.reward_overlap import BleuReward, RougeReward
from rlhf_studio.config.reward_rules import KeywordReward, LengthReward, LexiconReward, RegexReward, RepetitionReward

RewardComponent = Annotated[
    RewardModelReward
    | EnsembleReward
    | PythonReward
    | HttpReward
    | LengthReward
    | KeywordReward
    | LexiconReward
    | RegexReward
    | RepetitionReward
    | BleuReward
    | RougeReward
    | AnswerReward
    | JudgeReward
    | HumanReward,
    Field(discriminator="kind"),
]
"""Every kind of reward component. This is where a kind is registered: YAML, command line, form, checks and docs are made from it."""

REWARD_KINDS: dict[str, type[Component]] = {kind_of(model): model for model in get_args(get_args(RewardComponent)[0])}
"""The kinds by the word that ``kind`` holds, in the order of the docs."""


class RewardConfig(Section):
    """What earns reward: a weighted sum of components, and how the sum is shaped before PPO sees it."""

    components: list[RewardComponent] = setting(
        [RewardModelReward()], "Components", "The score of a response is the weighted sum of these.", level="basic", min_length=1,
        max_length=20,
    )  # fmt: skip
    scaling: Literal["none", "scale", "normalise"] = setting(
        "none",
        "Score scaling",
        "scale divides scores by their running standard deviation; normalise also subtracts their running mean.",
    )
    score_clip: float = setting(
        0.0, "Score clip", "Scores are limited to plus or minus this value after scaling; 0 does not limit.", ge=0, le=1e6
    )
    length_penalty: float = setting(
        0.0, "Length penalty", "Subtracted from the score for each token of the response, after scaling and clipping.",
        unit="score per token", ge=0, le=1000,
    )  # fmt: skip
    missing_eos_penalty: float = setting(
        0.0, "No-end penalty", "For a response that was cut off before its stop token; 0 is off.", ge=0, le=1000
    )
    missing_eos_mode: Literal["subtract", "replace"] = setting(
        "subtract", "No-end penalty by", "subtract: the penalty is taken off the score. replace: the score becomes minus the penalty."
    )
    gold: Literal["none", "world"] = setting(
        "none",
        "Gold scorer",
        "A second scorer that the policy never sees, drawn beside the reward to reveal over-optimisation. "
        "world: the review world's own rules.",
    )
