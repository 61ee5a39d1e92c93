"""What each stage adds to the doctor: the rules and words of its verdict, and its risky settings.

:mod:`.ppo`, :mod:`.ppo_words`, :mod:`.ppo_settings`   PPO
:mod:`.supervised`, :mod:`.supervised_settings`        fine-tuning, reward models, DPO
:mod:`.losses`                                         of these: how surely a loss fell or rose, and what was measured on held-out examples
:mod:`.evaluation`                                     evaluations

The checks of all stages are in :mod:`rlhf_studio.analysis.doctor.checks`.
"""
