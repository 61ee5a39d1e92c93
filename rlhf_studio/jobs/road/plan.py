"""The parts of a road through the review world, and the settings that each gets from the parts before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.jobs.road.state import Part, Road, RoadSettings

RECIPES = {"sft": "world-sft", "reward_model": "world-reward", "ppo": "world", "evaluation": "world-evaluation"}


SMALL = RoadSettings(reviews=2_000, pairs=200, ppo_steps=2, prompts=8)
"""A road that takes a minute: to see that all parts fit together. Nothing is learned well."""


def is_small(settings: RoadSettings) -> bool:
    """Whether a road has the lengths of :data:`SMALL`, whatever its rounds and its seed."""
    return replace(settings, rounds=SMALL.rounds, seed=SMALL.seed) == SMALL


def plan(settings: RoadSettings) -> list[Part]:
    """All parts in their order."""
    parts = [Part("sft", "Fine-tune a new policy", "run")]
    for number in range(1, settings.rounds + 1):
        behind = "" if number == 1 else f"-{number}"
        again = "" if number == 1 else f", round {number}"
        parts += [
            Part(f"pairs{behind}", f"Sample pairs and let the judge compare them{again}", "data"),
            Part(f"reward_model{behind}", f"Train a reward model{again}", "run"),
            Part(f"ppo{behind}", f"Train with PPO{again}", "run"),
        ]
    return [*parts, Part("evaluation", "Compare the policies on held-out prompts", "run")]


def run_settings(road: Road, key: str, runs: Path) -> StageConfig:
    """The configuration of a part that is a run. ``runs`` is the folder of the workspace's runs.

    Raises :class:`ConfigError`, and StopIteration never: the parts before it are done.
    """
    settings, (stage, _, number) = road.settings, key.partition("-")
    config = load_recipe(RECIPES[stage]).config

    def trained(part: str) -> str:
        return str(runs / road.part(part).run)

    before = "" if number in ("", "2") else f"-{int(number) - 1}"
    behind = f"-{number}" if number else ""
    values: dict[str, Any] = {"engine.seed": settings.seed}
    if stage == "sft":
        values |= {"data.max_rows": settings.reviews, "model.fresh": True}
    elif stage == "reward_model":
        start = trained(f"reward_model{before}") if number else trained("sft")
        values |= {"model.policy": start, "data.source": road.part(f"pairs{behind}").file}
    elif stage == "ppo":
        start = trained(f"ppo{before}") if number else trained("sft")
        judge = {"kind": "reward_model", "name": "judge", "model": trained(f"reward_model{behind}")}
        values |= {"model.policy": start, "reward.components": [judge], "ppo.steps": settings.ppo_steps}
    else:
        last = f"ppo{'' if settings.rounds == 1 else f'-{settings.rounds}'}"
        policies = [trained("sft"), *(trained(part.key) for part in road.parts if part.key.startswith("ppo"))]
        values |= {"model.policy": policies[0], "evaluation.policies": "\n".join(policies), "evaluation.prompts": settings.prompts}
        values |= {"reward.components": [{"kind": "reward_model", "name": "judge", "model": trained(last.replace("ppo", "reward_model"))}]}
    return with_values(config, values)


def policy_for_pairs(road: Road, key: str, runs: Path) -> Path:
    """The run whose policy writes the responses of a part with pairs: the fine-tuned one, or the one of the round before."""
    number = key.partition("-")[2]
    part = "sft" if not number else "ppo" if number == "2" else f"ppo-{int(number) - 1}"
    return runs / road.part(part).run
