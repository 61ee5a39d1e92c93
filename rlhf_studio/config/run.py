"""The whole configuration of a PPO run."""

from __future__ import annotations

from rlhf_studio.config.base import Section, setting
from rlhf_studio.config.critic import CriticConfig
from rlhf_studio.config.data import DataConfig
from rlhf_studio.config.execution import EngineConfig, GenerationConfig
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


SECTIONS = ("model", "lora", "critic", "data", "reward", "ppo", "generation", "engine")
