"""The parts of a road through the review world, and the settings that each gets from the parts before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.jobs.road.state import Part, Road, RoadSettings, key_of
from rlhf_studio.language import N_

RECIPES = {"sft": "world-sft", "reward_model": "world-reward", "ppo": "world", "evaluation": "world-evaluation"}


SMALL = RoadSettings(reviews=12_000, pairs=1_500, ppo_steps=12, prompts=64)
"""A road that takes some minutes and does what the whole one does: its policy writes sentences, and PPO makes them surely better."""


def of_world(road: Road) -> RoadSettings:
    """The settings of a road through the review world."""
    assert isinstance(road.settings, RoadSettings)  # the others are in rlhf_studio.jobs.road.own
    return road.settings


def plan(settings: RoadSettings) -> list[Part]:
    """All parts in their order."""
    parts = [Part("sft", N_("Fine-tune a new policy"), "run")]
    for number in range(1, settings.rounds + 1):
        again = f", round {number}" if number > 1 else ""
        parts += [
            Part(key_of("pairs", number), N_("Sample pairs and let the judge compare them") + again, "data"),
            Part(key_of("reward_model", number), N_("Train a reward model") + again, "run"),
            Part(key_of("ppo", number), N_("Train with PPO") + again, "run"),
        ]
    return [*parts, Part("evaluation", N_("Compare the policies on held-out prompts"), "run")]


def round_of(key: str) -> int:
    """The round that a part belongs to, from its key; 1 for a part that is done only once."""
    return int(key.partition("-")[2] or 1)


def run_settings(road: Road, key: str, runs: Path) -> StageConfig:
    """The configuration of a part that is a run. ``runs`` is the folder of the workspace's runs. The parts before it are done.

    Raises :class:`ConfigError`.
    """
    settings, stage, number = of_world(road), key.partition("-")[0], round_of(key)
    config = load_recipe(RECIPES[stage]).config

    def trained(stage: str, number: int = 1) -> str:
        return str(runs / road.part(key_of(stage, number)).run)

    def judge(number: int) -> list[dict[str, str]]:
        return [{"kind": "reward_model", "name": "judge", "model": trained("reward_model", number)}]

    values: dict[str, Any] = {"engine.seed": settings.seed}
    if stage == "sft":
        values |= {"data.max_rows": settings.reviews, "model.fresh": True}
    elif stage == "evaluation":
        policies = [trained("sft"), *(trained("ppo", number) for number in range(1, settings.rounds + 1))]
        values |= {"model.policy": policies[0], "evaluation.policies": "\n".join(policies), "evaluation.prompts": settings.prompts}
        values |= {"reward.components": judge(settings.rounds)}
    else:  # from the second round on, each goes on from what it trained in the round before
        values |= {"model.policy": trained(stage, number - 1) if number > 1 else trained("sft")}
        if stage == "reward_model":
            values |= {"data.source": road.part(key_of("pairs", number)).file}
        else:
            values |= {"reward.components": judge(number), "ppo.steps": settings.ppo_steps}
    return with_values(config, values)


def policy_for_pairs(road: Road, key: str, runs: Path) -> Path:
    """The run whose policy writes the responses of a part with pairs: the fine-tuned one, or the one of the round before."""
    number = round_of(key)
    return runs / road.part(key_of("ppo", number - 1) if number > 1 else "sft").run
