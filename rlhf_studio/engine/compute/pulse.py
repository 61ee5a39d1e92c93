"""The pulse of a step: where a long computation says how far it is, and where a request to stop takes effect inside it."""

from __future__ import annotations

from collections.abc import Callable


class Pulse:
    """Called after each sampled token, before each phase and before each minibatch, from any thread; nothing happens without a listener.

    Attributes:
        listener: takes what is going on, in words; it may raise to end the step.
    """

    def __init__(self) -> None:
        self.listener: Callable[[str], None] | None = None

    def __call__(self, doing: str) -> None:
        """Say what is going on. Raises what the listener raises."""
        if self.listener is not None:
            self.listener(doing)
