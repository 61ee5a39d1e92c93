"""PPO from Python, on a model, prompts and rewards that are in memory: no settings file, no process of its own.

    trainer = build_trainer(model, tokenizer, prompts, reward=lambda prompts, responses: [len(text) for text in responses])
    for stats in trainer.train():
        print(stats["objective/scores"], stats["objective/kl"])
    trainer.save_pretrained("out")

or a loop of your own, as with TRL 0.11: ``rollout = trainer.sample(prompts)``, then ``stats = trainer.step(rollout, scores)``.
"""

from __future__ import annotations

from rlhf_studio.library.recording import RunEnded
from rlhf_studio.library.trainer import PPOTrainer, Reward, build_trainer

__all__ = ["PPOTrainer", "Reward", "RunEnded", "build_trainer"]
