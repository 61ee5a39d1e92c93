"""The road: fine-tuning, preference pairs, reward model, PPO and evaluation, one after the other and unattended.

:mod:`plan`       what the parts are, and what each hands to the next
:mod:`state`      where a road stands, in one small file that everybody may read
:mod:`drive`      the process that goes along it, part by part
:mod:`running`    what does a part: the workspace's queue, or a command
:mod:`headlines`  what came of a part, in one short sentence
:mod:`verdict`    what came of the whole road
"""
