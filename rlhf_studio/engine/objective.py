"""From the configuration to the settings of PPO's objective."""

from __future__ import annotations

from rlhf_studio.config import PPOConfig
from rlhf_studio.ppo.objective import ObjectiveSettings


def objective_settings(ppo: PPOConfig, kl_coef: float, *, critic_only: bool = False, longest: int = 0) -> ObjectiveSettings:
    """The objective that the configuration asks for: 0 means none there.

    ``longest``: tokens of the longest response that may be written; only ``ppo.loss_average`` constant needs it, to divide by.
    """
    return ObjectiveSettings(
        cliprange=ppo.cliprange,
        cliprange_high=ppo.cliprange_high or None,
        dual_clip=ppo.dual_clip or None,
        cliprange_value=ppo.cliprange_value or None,
        vf_coef=ppo.vf_coef,
        entropy_coef=ppo.entropy_coef,
        kl_coef=kl_coef,
        kl_in_loss=ppo.kl_estimator if ppo.kl_placement == "loss" else None,
        critic_only=critic_only,
        ratio_level=ppo.ratio_level,
        loss_average=ppo.loss_average,
        longest=longest,
    )
