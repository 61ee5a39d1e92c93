"""The run configuration: one definition for the form, the command line, the YAML file, the docs table and every check.

Each field carries its title, one help sentence (with the unit), its bounds or choices, and a level: ``basic`` fields are
shown first, ``all`` fields on demand. Nothing else in the project repeats a default or a bound.

This package imports nothing of ours, so that every layer may import it.
"""

from __future__ import annotations

from rlhf_studio.config.base import Level, Section, setting
from rlhf_studio.config.data import DataConfig
from rlhf_studio.config.execution import EngineConfig, GenerationConfig
from rlhf_studio.config.model import LoraConfig, ModelConfig
from rlhf_studio.config.ppo import PPOConfig
from rlhf_studio.config.reward import (
    Component,
    KeywordReward,
    LengthReward,
    RegexReward,
    RepetitionReward,
    RewardComponent,
    RewardConfig,
    RewardModelReward,
)
from rlhf_studio.config.run import SECTIONS, RunConfig

__all__ = [
    "Component",
    "DataConfig",
    "EngineConfig",
    "GenerationConfig",
    "KeywordReward",
    "LengthReward",
    "Level",
    "LoraConfig",
    "ModelConfig",
    "PPOConfig",
    "RegexReward",
    "RepetitionReward",
    "RewardComponent",
    "RewardConfig",
    "RewardModelReward",
    "RunConfig",
    "SECTIONS",
    "Section",
    "setting",
]
