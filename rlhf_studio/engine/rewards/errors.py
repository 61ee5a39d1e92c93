"""What can go wrong while responses are scored."""

from __future__ import annotations

SHOWN = 300  # characters of a text that an error quotes


class RewardError(RuntimeError):
    """A component gave something that is not a score; the message names the component, the text and the cause."""


class StepSkipped(RewardError):
    """The step is left out because the run's settings say so; it is no failure, and not counted as one."""


class ComponentError(RuntimeError):
    """A component could not score. The message is the cause alone; ``row`` is the episode to blame, or None for the whole batch."""

    def __init__(self, message: str, row: int | None = None):
        self.row = row
        super().__init__(message)


class NotRated(ComponentError):
    """People have not rated the responses in time, and the step is to be skipped then."""


def quoted(text: str) -> str:
    """The text in quotes for a message, its middle left out when it is long."""
    if len(text) > SHOWN:
        text = f"{text[: SHOWN // 2]} ... {text[-SHOWN // 2 :]}"
    return repr(text)
