"""Watching other trainers: what they train is recorded as a run, so that every page works on it (``docs/attach.md``).

- :mod:`.studio`: what people call.
- :mod:`.arrays`, :mod:`.loops`: the numbers of a step from a loop of one's own, checked at the door.
- :mod:`.steps`: from responses to the records of a step.
- :mod:`.events`, :mod:`.online`: trainers that are built on the Trainer of transformers; GRPO and RLOO of TRL.
- :mod:`.settings`, :mod:`.names`: their settings and metrics by our names.
- :mod:`.recording`: the thread that writes.

It runs inside another program: it imports neither torch nor transformers, and asks the objects that it is given.
"""

from rlhf_studio.attach.studio import Studio

__all__ = ["Studio"]
