"""Checks that every forward pass of a run gives the numbers of the model's own plain forward pass, before anything is trained.

Start with ``check``.

- ``check``: before the first step: sampling, forward passes, update, reference, critic and reward models on a few rows.
- ``first_rollout``: before the first update: the log-probabilities of every row of the first rollout.
- ``tolerance``: how far two correct passes may differ by rounding, and the error for larger differences.
"""
