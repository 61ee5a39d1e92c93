"""What a run does, a file or a folder for each stage: :mod:`ppo`, :mod:`sft`, :mod:`reward_model`, :mod:`dpo`, :mod:`evaluating`.

- ``stage_run``: a run of any stage, as the engine process drives it; ``build`` makes one from settings.
- ``supervised``: what fine-tuning, reward models and DPO share. Of their own they have an objective (what is minimised) and what people
  see of it.
"""
