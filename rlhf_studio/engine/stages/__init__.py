"""The supervised stages before PPO, for models in memory: fine-tuning on examples (sft.py) and a reward model from preferences
(reward_training.py). Both use the loop in training_loop.py.
"""
