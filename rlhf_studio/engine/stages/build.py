"""From a configuration of any stage to a run that the engine process can drive."""

from __future__ import annotations

from rlhf_studio.config import DPORunConfig, EvaluationRunConfig, Permissions, RewardModelRunConfig, RunConfig, SFTRunConfig, StageConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.stages.dpo import build_dpo
from rlhf_studio.engine.stages.evaluating.stage import EvaluationStage
from rlhf_studio.engine.stages.ppo import PPOStage
from rlhf_studio.engine.stages.reward_model.stage import build_reward_stage
from rlhf_studio.engine.stages.sft import build_sft
from rlhf_studio.engine.stages.stage_run import StageRun
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.checks.notified import notified_problems
from rlhf_studio.runs.records import EventRecord


def refuse(config: StageConfig, permissions: Permissions) -> None:
    """Raise :class:`ConfigError` for what nobody has allowed, before anything is loaded."""
    if problems := list(notified_problems(config, permissions)):
        raise ConfigError(problems)
    if isinstance(config, RunConfig):
        PPOStage.refuse(config, permissions)
    if isinstance(config, EvaluationRunConfig):
        EvaluationStage.refuse(config, permissions)


def build_stage(config: StageConfig, compute: Compute, report: OnProgress, permissions: Permissions) -> tuple[StageRun, list[EventRecord]]:
    """Load everything that the configuration names. Returns the run, and events for people.

    ``permissions`` says which code and servers outside the program a reward may use.

    Raises :class:`ConfigError` or :class:`PromptsError` for anything that cannot be loaded or does not fit together.
    """
    if isinstance(config, RunConfig):
        return PPOStage.build(config, compute, report, permissions)
    if isinstance(config, SFTRunConfig):
        return build_sft(config, compute, report)
    if isinstance(config, RewardModelRunConfig):
        return build_reward_stage(config, compute, report)
    if isinstance(config, DPORunConfig):
        return build_dpo(config, compute, report)
    assert isinstance(config, EvaluationRunConfig)
    return EvaluationStage.build(config, compute, report, permissions)
