"""The picker of the Train page: how a person comes from a model of their own to a run in four steps.

:mod:`page`   what its script may ask: the lists, a model's facts, folders, uploads, the hub
:mod:`roots`  which folders may be looked into
"""
