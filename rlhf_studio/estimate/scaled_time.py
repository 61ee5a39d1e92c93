"""Time scaled from a run that somebody timed: other sizes of the batch or other lengths take as much longer as they are more work."""

from __future__ import annotations

from rlhf_studio.config import RunConfig


def work_per_step(config: RunConfig) -> float:
    """Tokens that pass through the model: once to be sampled, and about three times as much work for each learning pass."""
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
