"""Time scaled from a run that somebody timed: other sizes of the batch or other lengths take as much longer as they are more work."""

from __future__ import annotations

from rlhf_studio.config import DPORunConfig, EvaluationRunConfig, RewardModelRunConfig, RunConfig, SFTRunConfig, StageConfig


def work_per_step(config: StageConfig) -> float:
    """Tokens that pass through the model, at most; only the ratio of two runs of one stage and the same models means something.

    PPO: once to be sampled, and about three times as much work for each learning pass. An evaluation: sampled, and read by the reference.
    """
    if isinstance(config, EvaluationRunConfig):
        return (
            config.evaluation.batch_size * config.evaluation.samples * (config.data.max_prompt_tokens + config.generation.response_length)
        )
    if isinstance(config, SFTRunConfig | RewardModelRunConfig | DPORunConfig):
        return config.training.batch_size * config.data.max_tokens
    assert isinstance(config, RunConfig)
    return config.ppo.batch_size * config.generation.response_length * (1 + 3 * config.ppo.ppo_epochs)


def scaled_minutes(config: RunConfig, timed: RunConfig, minutes: float) -> float | None:
    """Minutes of a run, from the ``minutes`` that a whole run with the settings ``timed`` took; None unless the models are the same."""
    if _models(config) != _models(timed):
        return None
    return minutes * config.ppo.steps * work_per_step(config) / (timed.ppo.steps * work_per_step(timed))


def _models(config: RunConfig) -> tuple[object, ...]:
    """What decides the time of one token; rules cost next to nothing, and are left out."""
    slow: list[str] = []
    for component in config.reward.components:
        slow += [component.kind] if component.outside else component.model_names()  # nobody knows how long an outside reward takes
    return config.model, config.lora.enabled, slow
