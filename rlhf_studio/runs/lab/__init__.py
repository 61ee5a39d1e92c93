"""What a run leads to: forks and variations of it, more steps, sweeps, and what to try next.

- :mod:`.fork`: a new run from a checkpoint, or from the beginning, with other settings.
- :mod:`.resuming`: a run that goes on, with more steps or other settings.
- :mod:`.sweeps`: several runs over one or two settings. :mod:`.names`: names that say what is different.
- :mod:`.suggestions`: experiments to offer after a run. :mod:`.failures`: the setting that a failed run blames.
- :mod:`.fault`: the note of a run that is broken on purpose.
"""
