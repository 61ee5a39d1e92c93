"""An experiment: two runs of the review world from one seed, which differ in one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rlhf_studio.config import RunConfig
from rlhf_studio.config.recipes import load_recipe

Which = Literal["first", "second"]
WHICH: tuple[Which, Which] = ("first", "second")
"""The run that is as it should be, and the one with the change."""

RECIPE = "world"
STEPS = 20
MOST_SEED = 999
SMALL: Mapping[str, Mapping[str, Any]] = {
    "ppo": {"steps": STEPS},
    "engine": {"device": "cpu", "watch_prompts": 0, "probe_prompts": 0, "checkpoint_every": 0},
}
"""What all these runs have in common beside the recipe: twenty steps, on a CPU, with nothing that takes time and is not looked at."""


@dataclass(frozen=True)
class Side:
    """One of the two runs.

    Attributes:
        called: the part of the run's name that says which side it is.
        settings: what differs from the recipe, by dotted name.
        fault: the name of its fault among :data:`~rlhf_studio.lessons.faults.names.NAMES`; empty where there is none.
    """

    called: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Experiment:
    """One thing to break.

    Attributes:
        name: of the experiment and of its text.
        first, second: the run as it should be, and the one with the change.
        metric: the one that the question is about, by its short name in :data:`~rlhf_studio.lessons.faults.pair.METRICS`. The answer
            says how the second run ends in it, compared with the first: ``higher``, ``lower`` or ``same``.
        margin: a smaller difference than this is ``same``.
        token: the quantity of tokens in which the two runs are compared, of :data:`~rlhf_studio.runs.records.TOKEN_QUANTITIES`.
    """

    name: str
    first: Side
    second: Side
    metric: str
    margin: float
    token: str

    def side(self, which: Which) -> Side:
        return self.first if which == "first" else self.second

    def config(self, which: Which, seed: int) -> RunConfig:
        """The settings of a run. Raises ValueError for a seed that is not from 0 to 999."""
        if not 0 <= seed <= MOST_SEED:
            raise ValueError(f"seed must be a whole number from 0 to {MOST_SEED}")
        settings = load_recipe(RECIPE).config.model_dump(mode="json")
        for section, values in SMALL.items():
            settings[section] = settings[section] | values
        settings["engine"]["seed"] = seed
        for name, value in self.side(which).settings.items():
            section, _, setting = name.partition(".")
            if section == "reward_model":
                settings["reward"]["components"][0][setting] = value
            else:
                settings[section][setting] = value
        return RunConfig.model_validate(settings)

    def run_name(self, which: Which, seed: int) -> str:
        """What a run is called: at first sight nobody takes the second one for an ordinary run."""
        return f"Break it: {self.side(which).called}, seed {seed}"


def same_run(config: RunConfig, other: Any) -> bool:
    """Whether two configurations are equal, apart from the run's name."""
    return isinstance(other, RunConfig) and _plain(config) == _plain(other)


def _plain(config: RunConfig) -> dict[str, Any]:
    return config.model_dump(exclude={"name", "recipe"})
