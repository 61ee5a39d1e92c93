"""The whole configuration of a PPO run."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from rlhf_studio.config.base import Section, setting
from rlhf_studio.config.critic import CriticConfig
from rlhf_studio.config.data import DataConfig
from rlhf_studio.config.execution import EngineConfig, GenerationConfig
from rlhf_studio.config.live import live_problem
from rlhf_studio.config.model import LoraConfig, ModelConfig
from rlhf_studio.config.ppo import PPOConfig
from rlhf_studio.config.reward import RewardConfig


class RunConfig(Section):
    """Everything a run needs. Saved as ``config.yaml`` in the run folder."""

    name: str = setting("", "Run name", "A name for people; empty takes the recipe's.", level="basic", max_length=120)
    recipe: str = setting("", "Recipe", "The recipe this configuration started from.", max_length=120)
    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    critic: CriticConfig = CriticConfig()
    data: DataConfig = DataConfig()
    reward: RewardConfig = RewardConfig()
    ppo: PPOConfig = PPOConfig()
    generation: GenerationConfig = GenerationConfig()
    engine: EngineConfig = EngineConfig()

    def live_problem(self, setting: str, value: Any) -> str:
        """Why this run cannot take another value of a setting while it goes on, as the end of a sentence; empty when it can."""
        return live_problem(setting, value, {"ppo": PPOConfig, "generation": GenerationConfig}, self.ppo.kl_controller)

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        if self.engine.keep_best == "gold/score" and self.reward.gold == "none":
            raise ValueError("engine.keep_best: gold/score is not measured without a gold score; set reward.gold, or take objective/scores")
        return self


SECTIONS = ("model", "lora", "critic", "data", "reward", "ppo", "generation", "engine")
