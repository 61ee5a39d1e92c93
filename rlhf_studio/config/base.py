"""What every part of the configuration is made of: fields that carry their own help, and sections that refuse nonsense."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

Level = Literal["basic", "all"]
Names = Literal["", "model", "models", "policies", "data", "code", "settings"]
"""What a text names: a model (folder, hub id, or a run), several of them, policies of an evaluation one a line, a file or dataset that is
read, a file of code, or a file of settings for another program."""


def setting(
    default: Any,
    title: str,
    help: str,
    *,
    level: Level = "all",
    unit: str = "",
    allowed: str = "",
    number: bool = False,
    names: Names = "",
    **bounds: Any,
) -> Any:
    """A pydantic field with what the form and the docs need: title, help sentence, level and unit.

    ``allowed`` says in words what a ``pattern`` takes, for the docs and for error messages.
    ``number``: a text that may be a number, which then needs no quotes in a file.
    ``names``: what the text names, so that relative paths, and what a run is made from, are found without a list of settings elsewhere.
    """
    extra: JsonDict = {"level": level, "unit": unit, "allowed": allowed, "number": number, "names": names}
    return Field(default, title=title, description=help, json_schema_extra=extra, **bounds)


SMALLEST = 1e-30
"""The smallest number but 0 that a setting takes. Models compute in float32, which ends at 1e-38: there a smaller one, or the square root
that is divided by it, is 0 or has no end."""


class Section(BaseModel):
    """Common rules: unknown keys, NaN, infinities, numbers below :data:`SMALLEST` and ``true`` as a number are refused; instances are
    immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _numbers_as_text(cls, data: Any) -> Any:
        """A whole number (not true or false) stands for its text where that text may be a number."""
        if not isinstance(data, dict):
            return data
        numbers = {name: str(value) for name, value in data.items() if type(value) is int and may_be_a_number(cls.model_fields.get(name))}
        return {**data, **numbers} if numbers else data

    @model_validator(mode="after")
    def _float32_holds_it(self) -> Self:
        for name, value in self:
            if isinstance(value, float) and 0 < abs(value) < SMALLEST:
                raise ValueError(f"{name}: should be 0, or at least {SMALLEST:g} away from it, not {value:g}")
        return self

    @model_validator(mode="before")
    @classmethod
    def _null_clears(cls, data: Any) -> Any:
        """``null`` in a file or on the command line empties a text that may be empty."""
        if not isinstance(data, dict) or None not in data.values():
            return data
        return {name: "" if value is None and may_be_empty(cls.model_fields.get(name)) else value for name, value in data.items()}


def names_in(section: type[BaseModel]) -> dict[str, Names]:
    """The settings of a section that name a model or a file, with what they name."""
    names: dict[str, Names] = {}
    for name, field in section.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and (named := extra.get("names")):
            names[name] = cast("Names", named)
    return names


def may_be_a_number(field: FieldInfo | None) -> bool:
    """Whether this is a text that may be a whole number, such as a token id."""
    extra = field.json_schema_extra if field is not None else None
    return isinstance(extra, dict) and extra.get("number") is True


def may_be_empty(field: FieldInfo | None) -> bool:
    """Whether this is a text whose default is empty."""
    return field is not None and field.annotation is str and field.default == ""


def free_name(base: str, taken: Collection[str]) -> str:
    """``base``, or where that is taken, ``base`` with the lowest number from 2 on that makes it a name of its own."""
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base} {number}"
    return name
