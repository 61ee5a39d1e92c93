"""What a run leads to: forks and variations of it, more steps, sweeps, and what to try next.

- :mod:`.fork`: a new run from a checkpoint, or from the beginning, with other settings.
- :mod:`.longer`: a finished run with more steps.
- :mod:`.sweeps`: several runs over one or two settings. :mod:`.names`: names that say what is different.
- :mod:`.resumed`: a run that ended before its end, with other settings.
- :mod:`.suggestions`: experiments to offer after a run. :mod:`.failures`: the setting that a failed run blames.
"""
