"""What is wrong with a run's settings, found before it starts, one file for each part of the settings.

Each check gives :class:`rlhf_studio.config.io.Problem` records: the setting to blame, and what is wrong, in one sentence.
:mod:`rlhf_studio.inputs.preflight` asks all of them.

:mod:`policy`               policy, reference, LoRA settings and lengths fit together
:mod:`critic`               a separate critic can start from the model that the settings name
:mod:`rewards`              each reward component has what it needs
:mod:`prompts`              the prompts can be used with this policy
:mod:`machine`              the settings ask for nothing that this machine lacks
:mod:`accelerate_settings`  what accelerate's settings ask for
:mod:`trackers`             the trackers' packages are installed
"""
