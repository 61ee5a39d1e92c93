"""What a road on own files would do, looked at before anything is started: settings, problems, memory and disk of every part.

A part whose model is still to be trained is looked at with the model that the road begins with, which is as large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlhf_studio.config import NOTHING_ALLOWED, Permissions, StageConfig
from rlhf_studio.config.fitting import Fitted
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.inputs.estimate.counts import parameters
from rlhf_studio.inputs.preflight import Preflight, inspect_run
from rlhf_studio.jobs.road.own import FROM_PAIRS, Made, minutes_for, parts_of, settings_for_part
from rlhf_studio.jobs.road.state import OwnSettings, Part, Road
from rlhf_studio.language import _

FLOAT = 4
"""Bytes of a weight on a CPU."""
STAND_IN = {"kind": "length", "name": FROM_PAIRS}
"""In place of the reward model that the road is to train; it takes no memory."""
OPTIONS = {
    "model.policy": "--policy",
    "data.prompts": "--prompts",
    "data.column": "--prompts",
    "evaluation.judge": "--judge",
    "evaluation.policies": "--policy",
}


@dataclass(frozen=True)
class PartLook:
    """What was found of one part.

    Attributes:
        part: itself; of one that is left out nothing else is known.
        config: its settings; None where they do not go together.
        fitted: those that followed from model and file, by dotted name.
        report: the check of its models, files, memory and disk.
        problems: what keeps it from starting, each at the option that a person gave.
        minutes: the time that it may take; 0 for no limit.
        more_memory: bytes of the reward model beside ``report``, which cannot know it.
        policies: who answers in the comparison, in words; ``config`` cannot name what is still to be trained.
    """

    part: Part
    config: StageConfig | None = None
    fitted: Mapping[str, Fitted] = field(default_factory=dict)
    report: Preflight | None = None
    problems: tuple[Problem, ...] = ()
    minutes: float = 0.0
    more_memory: int = 0
    policies: tuple[str, ...] = ()


def look_at(own: OwnSettings, workspace: Path, permissions: Permissions = NOTHING_ALLOWED) -> list[PartLook]:
    """Every part in its order. Reads small files only, and starts nothing."""
    parts = parts_of(own)
    road = Road(workspace, "", own, parts)
    return [PartLook(part) if part.state == "skipped" else _look(road, part, workspace, permissions) for part in parts]


def problems_of(looks: list[PartLook]) -> list[Problem]:
    """What keeps the road from starting, each problem once."""
    return list(dict.fromkeys(problem for look in looks for problem in look.problems))


def _look(road: Road, part: Part, workspace: Path, permissions: Permissions) -> PartLook:
    own = road.settings
    assert isinstance(own, OwnSettings)
    minutes, to_be_trained = minutes_for(road, part.key), not own.reward
    now = replace(own, reward=own.reward or STAND_IN)
    try:
        config, fitted = settings_for_part(now, part.key, Made(), minutes)
    except ConfigError as error:
        return PartLook(part, problems=_at_options(error.problems, part.key, own), minutes=minutes)
    report = inspect_run(config, workspace, permissions=permissions)
    weights = parameters(report.policy) if report.policy else None
    beside = (weights or 0) * FLOAT if to_be_trained and part.key in ("ppo", "evaluation") else 0
    tuned = (_("the fine-tuned model"),) if own.demonstrations else ()
    policies = ("the start", *tuned, "the end") if part.key == "evaluation" else ()
    return PartLook(part, config, fitted, report, _at_options(report.problems, part.key, own), minutes, beside, policies)


def _at_options(problems: list[Problem], key: str, own: OwnSettings) -> tuple[Problem, ...]:
    """The problems with the options of the road in the place of the settings that it makes of them."""
    options = {**OPTIONS, "data.source": "--demonstrations" if key == "sft" else "--pairs"}

    def option(setting: str) -> str:
        if setting.startswith("reward.components"):
            return "--judge" if key == "evaluation" and own.judge else "--reward"
        return options.get(setting, setting)

    return tuple(Problem(option(problem.field), problem.message) for problem in problems)
