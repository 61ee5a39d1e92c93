"""Import lines of TRL 1.12: ``from rlhf_studio.trl.experimental.ppo import PPOConfig, PPOTrainer``."""
