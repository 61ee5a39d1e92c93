"""Scoring a text without a run, in a child process.

:mod:`.one_text`  with all rewards of a configuration: each component's score, and the final score that PPO would see
:mod:`.look`      with one reward model, closely: the score of every beginning of the text, and of every change of a word
:mod:`.spread`    with all rewards, the model's own answers: their scale and spread
:mod:`.server`    serves both to the app; :mod:`.command` is the command ``score``
"""
