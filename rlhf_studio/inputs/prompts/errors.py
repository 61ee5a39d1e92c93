"""What every reader of prompts, demonstrations and pairs raises."""

from __future__ import annotations

SOURCE = "data.prompts"
"""The setting that readers blame for a source; where another one names it, ``open_source`` puts that in its place."""

NO_COLUMN = "there is no column"
"""How the message of :func:`no_column` begins."""


class PromptsError(ValueError):
    """The prompts, or the examples of another stage, cannot be read. ``field`` is the dotted name of the setting to blame."""

    def __init__(self, field: str, message: str):
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


def no_column(field: str, column: str, columns: list[str]) -> PromptsError:
    """The error for a column that a source does not have; it names those that there are."""
    names = ", ".join(str(name)[:40] for name in columns[:12]) + (", ..." if len(columns) > 12 else "")
    return PromptsError(field, f"{NO_COLUMN} {column!r}; the columns are: {names or '(none)'}")
