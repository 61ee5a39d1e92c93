"""A class for each stage's whole configuration, and the table of all stages."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from rlhf_studio.config.base import setting
from rlhf_studio.config.data import DataConfig
from rlhf_studio.config.evaluation import EvaluationConfig, EvaluationRewardConfig
from rlhf_studio.config.examples import DemonstrationsConfig, PairsConfig
from rlhf_studio.config.execution import EngineConfig, GenerationConfig
from rlhf_studio.config.model import ComparedModelConfig, LoraConfig, ReferenceModelConfig, RewardBaseConfig, StartModelConfig
from rlhf_studio.config.run import RunConfig
from rlhf_studio.config.stage import Stage, StageConfig
from rlhf_studio.config.training import DPOConfig, RewardTrainingConfig, SFTConfig, TrainingConfig


class ExamplesRunConfig(StageConfig):
    """What the stages that learn from given examples have in common."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.engine.keep_best not in ("none", "eval_loss"):
            raise ValueError(f"engine.keep_best: {self.engine.keep_best} is measured in PPO runs only; take eval_loss, or none")
        return self

    @property
    def planned_steps(self) -> int:
        """How many steps the run has at most; 0 where only the examples decide."""
        return self.training.max_steps

    @property
    def training(self) -> TrainingConfig:
        """The settings of the optimisation."""
        raise NotImplementedError


class SFTRunConfig(ExamplesRunConfig):
    """A run of supervised fine-tuning: a language model learns to continue prompts as the demonstrations do."""

    sections: ClassVar[tuple[str, ...]] = ("model", "lora", "data", "sft", "generation", "engine")
    steps_setting: ClassVar[str] = "sft.max_steps"

    stage: Literal["sft"] = setting("sft", "Stage", "What the run does.")
    model: StartModelConfig = StartModelConfig()
    lora: LoraConfig = LoraConfig()
    data: DemonstrationsConfig = DemonstrationsConfig()
    sft: SFTConfig = SFTConfig()
    generation: GenerationConfig = GenerationConfig()
    engine: EngineConfig = EngineConfig()

    @property
    def training(self) -> SFTConfig:
        """The settings of the optimisation."""
        return self.sft


class RewardModelRunConfig(ExamplesRunConfig):
    """A run that trains a reward model: a sequence classifier learns which of two responses people prefer (Bradley-Terry)."""

    sections: ClassVar[tuple[str, ...]] = ("model", "lora", "data", "reward_model", "engine")
    steps_setting: ClassVar[str] = "reward_model.max_steps"

    stage: Literal["reward_model"] = setting("reward_model", "Stage", "What the run does.")
    model: RewardBaseConfig = RewardBaseConfig()
    lora: LoraConfig = LoraConfig()
    data: PairsConfig = PairsConfig()
    reward_model: RewardTrainingConfig = RewardTrainingConfig()
    engine: EngineConfig = EngineConfig()

    @property
    def training(self) -> RewardTrainingConfig:
        """The settings of the optimisation."""
        return self.reward_model


class DPORunConfig(ExamplesRunConfig):
    """A run of direct preference optimisation: the policy learns from the pairs themselves, without a reward model."""

    sections: ClassVar[tuple[str, ...]] = ("model", "lora", "data", "dpo", "generation", "engine")
    steps_setting: ClassVar[str] = "dpo.max_steps"

    stage: Literal["dpo"] = setting("dpo", "Stage", "What the run does.")
    model: ReferenceModelConfig = ReferenceModelConfig()
    lora: LoraConfig = LoraConfig()
    data: PairsConfig = PairsConfig()
    dpo: DPOConfig = DPOConfig()
    generation: GenerationConfig = GenerationConfig()
    engine: EngineConfig = EngineConfig()

    @property
    def training(self) -> DPOConfig:
        """The settings of the optimisation."""
        return self.dpo


class EvaluationRunConfig(StageConfig):
    """A run that trains nothing: policies answer the same prompts, and rewards score what they say."""

    sections: ClassVar[tuple[str, ...]] = ("model", "data", "reward", "evaluation", "generation", "engine")

    stage: Literal["evaluation"] = setting("evaluation", "Stage", "What the run does.")
    model: ComparedModelConfig = ComparedModelConfig()
    data: DataConfig = DataConfig()
    reward: EvaluationRewardConfig = EvaluationRewardConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    generation: GenerationConfig = GenerationConfig()
    engine: EngineConfig = EngineConfig()


SupervisedConfig = SFTRunConfig | RewardModelRunConfig | DPORunConfig
"""The stages that learn from given examples."""

STAGES: dict[Stage, type[StageConfig]] = {
    "ppo": RunConfig,
    "sft": SFTRunConfig,
    "reward_model": RewardModelRunConfig,
    "dpo": DPORunConfig,
    "evaluation": EvaluationRunConfig,
}
"""The configuration of each stage."""


PROMPT_WRITING = ("chat_template", "prompt_format", "system_text")
"""The settings of ``data`` that say how a prompt is written for the model. Every stage has them."""


def prompt_writing(config: StageConfig) -> dict[str, Any]:
    """How the run writes its prompts, by name of the setting: whatever uses its result must write them in the same way."""
    data = config.data  # type: ignore[attr-defined]  # every stage has data
    return {name: getattr(data, name) for name in PROMPT_WRITING}


def as_sampled(config: StageConfig) -> RunConfig:
    """How the policy of a run is loaded and sampled from, written as settings of PPO: what talking to it, watching it and exporting need.

    Of a PPO run the settings themselves. Raises ValueError for a stage without a policy.
    """
    if isinstance(config, RunConfig):
        return config
    if not isinstance(config, SFTRunConfig | DPORunConfig):
        raise ValueError(f"a run of the stage {config.stage} has no policy")
    model = config.model.model_dump(exclude={"fresh"})
    data = {**prompt_writing(config), "max_prompt_tokens": config.data.max_tokens}
    settings = {"model": model, "lora": config.lora.model_dump(), "data": data}
    settings |= {"generation": config.generation.model_dump(), "engine": config.engine.model_dump()}
    return RunConfig.model_validate({"name": config.name, "recipe": config.recipe, **settings})
