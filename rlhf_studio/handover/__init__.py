"""A run's settings for the field's distributed engines, verl and OpenRLHF: launch script, prompts, reward function, and what is different.

:func:`rlhf_studio.handover.write.hand_over` writes all of it. The engines themselves are not needed here.
"""
