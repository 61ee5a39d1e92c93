"""What every part of the configuration is made of: fields that carry their own help, and sections that refuse nonsense."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Level = Literal["basic", "all"]


def setting(default: Any, title: str, help: str, *, level: Level = "all", unit: str = "", allowed: str = "", **bounds: Any) -> Any:
    """A pydantic field with what the form and the docs need: title, help sentence, level and unit.

    ``allowed`` says in words what a ``pattern`` takes, for the docs and for error messages.
    """
    extra = {"level": level, "unit": unit, "allowed": allowed}
    return Field(default, title=title, description=help, json_schema_extra=extra, **bounds)


class Section(BaseModel):
    """Common rules: unknown keys, NaN, infinities and ``true`` as a number are refused; instances are immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=True)
