"""Sentences that a broken run says of itself; :mod:`.wrappers` writes them, :mod:`.shelf` reads them."""

from __future__ import annotations

from rlhf_studio.language import S_

NOTICED = S_("The check before training would refuse this run:")
"""With this begins the event that says what the engine has noticed."""


def broken_on_purpose(fault: str) -> str:
    """The event that each start of a broken run records."""
    return S_(f"This run is broken on purpose, to learn from it: it has the fault {fault}. Do not take it for a run without faults.")
