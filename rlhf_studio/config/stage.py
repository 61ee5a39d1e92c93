"""What the settings of every run have in common, whatever its stage: PPO, and the stages before and after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import model_validator

from rlhf_studio.config.base import Section, setting
from rlhf_studio.language import S_

if TYPE_CHECKING:
    from rlhf_studio.config.execution import EngineConfig
    from rlhf_studio.config.model import TrainedModelConfig

Stage = Literal["ppo", "sft", "reward_model", "dpo", "evaluation"]

STAGE_TITLES: dict[Stage, str] = {
    "ppo": "PPO",
    "sft": "Supervised fine-tuning",
    "reward_model": "Reward model",
    "dpo": "DPO",
    "evaluation": "Evaluation",
}
"""What a stage is called on the pages."""

_WRITES_WHILE_IT_LEARNS: tuple[Stage, ...] = ("ppo", "sft", "dpo")
_LEARNS: tuple[Stage, ...] = (*_WRITES_WHILE_IT_LEARNS, "reward_model")
_NOT_WHERE_NOTHING_IS_LEARNED = (
    "engine.watch_every", "engine.record_samples", "engine.snapshot_every", "engine.keep_best", "engine.non_finite", "engine.processes",
    "engine.accelerate_config", "model.gradient_checkpointing",
)  # fmt: skip
# An evaluation shows the weighted sum of the scores as it is.
_ONLY_REWARDS_THAT_TRAIN = (
    "reward.scaling", "reward.score_clip", "reward.length_penalty", "reward.missing_eos_penalty", "reward.missing_eos_mode",
)  # fmt: skip
USED_ONLY_BY: dict[str, tuple[Stage, ...]] = {
    "engine.probe_prompts": ("ppo",),
    "engine.watch_prompts": _WRITES_WHILE_IT_LEARNS,
    **dict.fromkeys(_NOT_WHERE_NOTHING_IS_LEARNED, _LEARNS),
    **dict.fromkeys(("generation.response_length_min", "data.shuffle"), ("ppo",)),
    "generation.batch_size": ("ppo", "evaluation"),
    **dict.fromkeys(("data.margin_column", "data.margin_from_ratings", "data.group_column"), ("reward_model",)),
    **dict.fromkeys(_ONLY_REWARDS_THAT_TRAIN, ("ppo",)),
}
"""Settings of the sections that stages share, which only these stages use. Another stage takes no value of them but the default."""


def uses(stage: Stage, name: str) -> bool:
    """Whether a run of this stage uses a setting that it has, named as in ``engine.keep_best``."""
    return stage in USED_ONLY_BY.get(name, (stage,))


def used_in(stage: Stage, section: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a section's settings, taken from a run of another stage, that this stage uses."""
    return {name: value for name, value in settings.items() if uses(stage, f"{section}.{name}")}


class StageConfig(Section):
    """Everything a run needs. Saved as ``config.yaml`` in the run folder. Each stage has a class of its own: :data:`STAGES`."""

    sections: ClassVar[tuple[str, ...]] = ()
    """The names of the sections, in the order of the form."""
    steps_setting: ClassVar[str] = "ppo.steps"
    """The setting that says how many steps the run has."""

    stage: Stage = setting("ppo", "Stage", "What the run does: ppo, or a stage before or after it.")
    name: str = setting("", "Run name", "A name for people; empty takes the recipe's.", level="basic", max_length=120)
    recipe: str = setting("", "Recipe", "The recipe this configuration started from.", max_length=120)

    if TYPE_CHECKING:  # each stage has both, at the place where its form shows them
        model: TrainedModelConfig
        engine: EngineConfig

    @model_validator(mode="after")
    def _uses_what_is_set(self) -> Self:
        for name, stages in USED_ONLY_BY.items():
            section, _, setting = name.partition(".")
            part = getattr(self, section, None)
            if self.stage in stages or part is None or setting not in type(part).model_fields:
                continue
            default = type(part).model_fields[setting].get_default(call_default_factory=True)
            if getattr(part, setting) != default:
                raise ValueError(f"{name}: a run of the stage {self.stage} does not use this; leave it out")
        return self

    @property
    def unused(self) -> frozenset[str]:
        """The settings that this run does not use, named as in ``engine.keep_best``: of these it takes no value but the default."""
        return frozenset(name for name in USED_ONLY_BY if not uses(self.stage, name))

    @property
    def planned_steps(self) -> int:
        """How many steps the run has, or has at most; 0 where that is known only once its data has been read."""
        return 0

    @property
    def learns(self) -> str:
        """The folder or hub id of the model that the run trains, or compares others with."""
        return self.model.policy

    def live_problem(self, setting: str, value: Any) -> str:
        """Why this run cannot take another value of a setting while it goes on, as the end of a sentence; empty when it can."""
        return S_("cannot change while a run of this stage goes on")
