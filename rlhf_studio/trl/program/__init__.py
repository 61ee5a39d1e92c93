"""The names that programs for TRL's PPO import, on this program's engine.

- :mod:`.trainer`: ``PPOTrainer``, which is the classic one (:mod:`.classic`, TRL 0.4 to 0.11) or the later one (:mod:`.later`, 0.12 to
  1.12), as its configuration is (:mod:`.config`).
- :mod:`.given`: the queries, responses and scores of a classic step, checked. :mod:`.statistics`: what a step returns, by TRL's names.
- :mod:`.base`: what both have: the engine's trainer, and the run folder for the app's pages.
- :mod:`.parts`: from models in memory to the engine's trainer. :mod:`.settings`: TRL's options as ours; :mod:`.options`: as fields of
  dataclasses.
- :mod:`.models`, :mod:`.helpers`, :mod:`.script`: what stands around the trainer.

What is computed otherwise than in TRL: docs/from-trl.md.
"""
