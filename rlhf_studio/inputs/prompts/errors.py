"""What every reader of prompts, demonstrations and pairs raises."""

from __future__ import annotations

from rlhf_studio.language import S_

SOURCE = "data.prompts"
"""The setting that readers blame for a source. Where another setting names the source, ``open_source`` blames that one instead."""


class PromptsError(ValueError):
    """The prompts, or the examples of another stage, cannot be read. ``field`` is the dotted name of the setting to blame."""

    def __init__(self, field: str, message: str):
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class NoColumn(PromptsError):
    """A source does not have a column that is needed."""


def no_column(field: str, column: str, columns: list[str]) -> NoColumn:
    """The error for a column that a source does not have; it names those that there are."""
    names = ", ".join(str(name)[:40] for name in columns[:12]) + (", ..." if len(columns) > 12 else "")
    return NoColumn(field, S_(f"there is no column {column!r}; the columns are: {names or '(none)'}"))
