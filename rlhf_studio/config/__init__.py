"""The run configuration: one definition for the form, the command line, the YAML file, the docs table and every check.

Each field carries its title, one help sentence (with the unit), its bounds or choices, and a level: ``basic`` fields are
shown first, ``all`` fields on demand. Nothing else in the project repeats a default or a bound.

This package imports nothing of ours, so that every layer may import it.
"""

from __future__ import annotations

from rlhf_studio.config.base import Level, Names, Section, names_in, setting
from rlhf_studio.config.critic import CriticConfig
from rlhf_studio.config.data import DataConfig
from rlhf_studio.config.evaluation import EvaluationConfig
from rlhf_studio.config.examples import DemonstrationsConfig, ExamplesConfig, PairsConfig
from rlhf_studio.config.execution import EngineConfig, GenerationConfig
from rlhf_studio.config.model import LoraConfig, ModelConfig, short_name
from rlhf_studio.config.permissions import (
    DESKTOP,
    NOTHING_ALLOWED,
    Permissions,
    add_permission_flags,
    permissions_from_environment,
    permissions_from_flags,
)
from rlhf_studio.config.ppo import PPOConfig
from rlhf_studio.config.reward import REWARD_KINDS, RewardComponent, RewardConfig
from rlhf_studio.config.reward_answer import AnswerReward
from rlhf_studio.config.reward_base import Component, ComponentProblem, Group, kind_of
from rlhf_studio.config.reward_judge import JudgeReward
from rlhf_studio.config.reward_models import ClassifierReward, EnsembleReward, RewardModelReward
from rlhf_studio.config.reward_outside import HttpReward, PythonReward, ServerReward
from rlhf_studio.config.reward_overlap import BleuReward, RougeReward
from rlhf_studio.config.reward_rules import KeywordReward, LengthReward, LexiconReward, RegexReward, RepetitionReward
from rlhf_studio.config.run import SECTIONS, RunConfig
from rlhf_studio.config.stage import STAGE_TITLES, USED_ONLY_BY, Stage, StageConfig, used_in, uses
from rlhf_studio.config.stages import (
    STAGES,
    DPORunConfig,
    EvaluationRunConfig,
    RewardModelRunConfig,
    SFTRunConfig,
    SupervisedConfig,
    prompt_writing,
)
from rlhf_studio.config.training import DPOConfig, RewardTrainingConfig, SFTConfig, TrainingConfig

__all__ = [
    "add_permission_flags",
    "AnswerReward",
    "BleuReward",
    "ClassifierReward",
    "Component",
    "CriticConfig",
    "DataConfig",
    "DemonstrationsConfig",
    "DESKTOP",
    "DPOConfig",
    "DPORunConfig",
    "EngineConfig",
    "EnsembleReward",
    "EvaluationConfig",
    "EvaluationRunConfig",
    "ExamplesConfig",
    "ComponentProblem",
    "GenerationConfig",
    "Group",
    "HttpReward",
    "JudgeReward",
    "KeywordReward",
    "kind_of",
    "LengthReward",
    "Level",
    "LexiconReward",
    "LoraConfig",
    "ModelConfig",
    "Names",
    "names_in",
    "NOTHING_ALLOWED",
    "PairsConfig",
    "Permissions",
    "permissions_from_environment",
    "permissions_from_flags",
    "PPOConfig",
    "prompt_writing",
    "PythonReward",
    "RegexReward",
    "RepetitionReward",
    "REWARD_KINDS",
    "RewardComponent",
    "RewardConfig",
    "RewardModelReward",
    "RewardModelRunConfig",
    "RewardTrainingConfig",
    "RougeReward",
    "RunConfig",
    "Section",
    "SECTIONS",
    "ServerReward",
    "setting",
    "SFTConfig",
    "SFTRunConfig",
    "short_name",
    "Stage",
    "STAGE_TITLES",
    "StageConfig",
    "STAGES",
    "SupervisedConfig",
    "TrainingConfig",
    "USED_ONLY_BY",
    "used_in",
    "uses",
]
