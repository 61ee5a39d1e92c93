"""A recorded run as a short film: its curves, the moments that matter, and a few answers whose tokens change from step to step.

- :mod:`.payload`: :func:`replay_of`, which puts everything together and says what is in it. Start here.
- :mod:`.scale`: whether score and gold of a run that goes on may share an axis
- :mod:`.moments`: the moments, by the doctor's own rules, each with one sentence
- :mod:`.answers`: the answers, token by token
"""

from rlhf_studio.analysis.replay.payload import replay_of

__all__ = ["replay_of"]
