"""What the doctor knows of the stages around PPO: fine-tuning, reward models, DPO, evaluation.

:mod:`losses`    how surely a loss fell or rose, and what was measured on held-out examples
:mod:`verdict`   what such a run came to
:mod:`settings`  risky settings

Their checks lie beside those of PPO, in :mod:`rlhf_studio.analysis.doctor.checks`.
"""
