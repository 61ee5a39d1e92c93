"""How a command of this program ends: the exit codes, for shells and for the processes that start it. docs/guide.md tells people."""

from __future__ import annotations

DONE = 0
"""The work is done."""
FAILED = 1
"""The run failed; the cause is on record and was printed."""
BAD_INPUT = 2
"""Something that a person gave is wrong: one line says what, and nothing was trained."""
STOPPED = 3
"""The run stopped on request and can be resumed."""

OF_STATES = {"finished": DONE, "stopped": STOPPED}
"""The exit code for the state that a run ended in; every other state means :data:`FAILED`."""
