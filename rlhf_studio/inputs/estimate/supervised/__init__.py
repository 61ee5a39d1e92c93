"""What fine-tuning, a reward model or DPO will cost.

:mod:`sizes`    how many steps there are, and how many tokens a step and a micro-batch hold
:mod:`memory`   memory, part by part
:mod:`savings`  what a change of one setting saves
:mod:`disk`     what such a run writes
"""
