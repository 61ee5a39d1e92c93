"""Talking to policies: a process that answers prompts with a run's starting and trained policies, token by token.

Read in this order:

- :mod:`.server`: the process, which takes requests as JSON lines and answers with events.
- :mod:`.answer`: one policy's answer to one prompt, as a stream of events.
- :mod:`.loaded`: from a run folder and a step to a policy with its reference and its rewards.
- :mod:`.loaded_policies`: which policies stay loaded, and whether another one fits into memory.
- :mod:`.command`: the command ``generate``.

It uses the engine's own loading, sampling and scoring, so that an answer is what the engine itself would have sampled.
"""
