"""The whole configuration of a PPO run."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from rlhf_studio.config.base import setting
from rlhf_studio.config.critic import CriticConfig
from rlhf_studio.config.data import DataConfig
from rlhf_studio.config.execution import EngineConfig, GenerationConfig
from rlhf_studio.config.live import live_problem
from rlhf_studio.config.model import LoraConfig, ModelConfig
from rlhf_studio.config.ppo import CRITIC_SETTINGS, PPOConfig
from rlhf_studio.config.reward import RewardConfig
from rlhf_studio.config.stage import StageConfig
from rlhf_studio.language import S_

SECTIONS = ("model", "lora", "critic", "data", "reward", "ppo", "generation", "engine")
"""The sections of a PPO run, in the order of the form."""


CRITIC_SETTINGS_ELSEWHERE = ("model.value_head_init", *(f"critic.{name}" for name in CriticConfig.model_fields))
"""Settings outside of the section ``ppo`` that only a run with a critic uses."""


class RunConfig(StageConfig):
    """Everything a PPO run needs. Saved as ``config.yaml`` in the run folder."""

    sections: ClassVar[tuple[str, ...]] = SECTIONS

    stage: Literal["ppo"] = setting("ppo", "Stage", "What the run does.")
    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    critic: CriticConfig = CriticConfig()
    data: DataConfig = DataConfig()
    reward: RewardConfig = RewardConfig()
    ppo: PPOConfig = PPOConfig()
    generation: GenerationConfig = GenerationConfig()
    engine: EngineConfig = EngineConfig()

    @property
    def unused(self) -> frozenset[str]:
        """As for every stage; without a critic also the settings of one."""
        of_critic = () if self.ppo.has_critic else (*CRITIC_SETTINGS_ELSEWHERE, *(f"ppo.{name}" for name in CRITIC_SETTINGS))
        return super().unused.union(of_critic)

    @property
    def planned_steps(self) -> int:
        """How many steps the run has."""
        return self.ppo.steps

    def live_problem(self, setting: str, value: Any) -> str:
        """Why this run cannot take another value of a setting while it goes on, as the end of a sentence; empty when it can."""
        return live_problem(setting, value, {"ppo": PPOConfig, "generation": GenerationConfig}, self.ppo.kl_controller)

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        if self.engine.keep_best == "eval_loss":
            raise ValueError("engine.keep_best: eval_loss is not measured in a PPO run; take objective/scores or gold/score")
        if self.engine.keep_best == "gold/score" and self.reward.gold == "none":
            raise ValueError("engine.keep_best: gold/score is not measured without a gold score; set reward.gold, or take objective/scores")
        return self

    @model_validator(mode="after")
    def _has_a_critic_to_set(self) -> RunConfig:
        wrong = []
        for name in () if self.ppo.has_critic else CRITIC_SETTINGS_ELSEWHERE:
            section, _, setting = name.partition(".")
            part = getattr(self, section)
            default = type(part).model_fields[setting].default
            if getattr(part, setting) != default:
                expected = repr(default) if default == "" else default
                wrong.append(S_(f"{name}: ppo.advantage {self.ppo.advantage} has no critic and does not use this; leave it at {expected}"))
        if wrong:
            raise ValueError("\n".join(wrong))
        return self
