"""The Road page: fine-tuning, pairs, reward model, PPO and evaluation as one guided way."""
