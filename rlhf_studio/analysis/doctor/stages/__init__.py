"""What is a stage's own in the doctor: how the verdict on its runs is reached, in which words, and which of its settings are risky.

:mod:`.ppo`, :mod:`.ppo_settings`                 PPO
:mod:`.supervised`, :mod:`.supervised_settings`   fine-tuning, reward models, DPO
:mod:`.losses`                                    of these: how surely a loss fell or rose, and what was measured on held-out examples
:mod:`.evaluation`                                evaluations

The checks of all stages are in :mod:`rlhf_studio.analysis.doctor.checks`.
"""
