"""Reward models: a sequence classifier with one output learns which of two responses people prefer.

:mod:`training`  the loss, and a whole training in memory: start here
:mod:`stage`     the run
:mod:`build`     what is trained: a new head on a language model's trunk, or a reward model that is trained on
:mod:`measure`   what its scores tell of held-out pairs, also of texts that say the same (:mod:`rewrites`)
:mod:`finish`    normalising and saving it; ensembles
"""
