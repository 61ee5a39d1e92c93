"""Reward models: a sequence classifier with one output learns which of two responses people prefer.

:mod:`training`  the loss, and a whole training in memory: start here
:mod:`stage`     the run
:mod:`build`     what is trained: a new head on a language model's trunk, or a reward model that is trained on
:mod:`measure`   how good its scores are on held-out pairs, and on texts that say the same in other words (:mod:`rewrites`)
:mod:`finish`    normalising and saving it; ensembles
"""
