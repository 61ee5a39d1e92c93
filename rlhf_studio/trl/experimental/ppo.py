"""What programs import from ``trl.experimental.ppo``."""

from __future__ import annotations

from rlhf_studio.trl.program.config import PPOConfig
from rlhf_studio.trl.program.models import AutoModelForCausalLMWithValueHead
from rlhf_studio.trl.program.trainer import PPOTrainer

__all__ = ["AutoModelForCausalLMWithValueHead", "PPOConfig", "PPOTrainer"]
