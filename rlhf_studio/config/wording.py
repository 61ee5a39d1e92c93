"""What is wrong with a value, in words: pydantic's findings as one sentence that says which values are allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlhf_studio.config.reward import REWARD_KINDS
from rlhf_studio.config.run import RunConfig
from rlhf_studio.language import S_

NEEDS_VALUE = "needs a value"
"""Said of a setting that is empty and must not be."""
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": S_("settings as 'name: value'"),
    "model_attributes_type": S_("settings as 'name: value'"),
    "dict_type": S_("settings as 'name: value'"),
}
_LIMITS = (
    S_("input should be greater than or equal to {limit}, not {value}"),
    S_("input should be less than or equal to {limit}, not {value}"),
    S_("input should be greater than {limit}, not {value}"),
    S_("input should be less than {limit}, not {value}"),
    S_("input should be {expected}, not {value}"),
    S_("input should be a finite number, not {value}"),
    S_("input should be a valid number, not {value}"),
    S_("input should be a valid integer, not {value}"),
    S_("should be at least {limit}, not {value}"),
    S_("should be at most {limit}, not {value}"),
    S_("should be above {limit}, not {value}"),
    S_("should be below {limit}, not {value}"),
    S_("should be {expected}, not {value}"),
    S_("input should be text, not {value}"),
    S_("input should be text, not {value} (text stands in quotes)"),
    S_("should be text, not {value}"),
    S_("should be text, not {value} (text stands in quotes)"),
    S_("string should have at most {limit} characters, not {value}"),
    S_("should have at most {limit} characters, not {value}"),
    S_("string should have at least {limit} characters, not {value}"),
    S_("should have at least {limit} characters, not {value}"),
    S_("there is no kind {kind}; there are: {kinds}"),
    S_("needs a kind; there are: {kinds}"),
    S_("a whole number"),
    S_("true or false"),
    S_("a list"),
)
"""What pydantic says, and how pages say it, for :func:`rlhf_studio.language.told`."""
_COUNTED = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}


def sentence(finding: Mapping[str, Any], model: type[BaseModel] = RunConfig) -> str:
    """One entry of ``ValidationError.errors()`` of ``model`` as a sentence without a final stop."""
    kind, value, context = finding["type"], finding["input"], finding.get("ctx", {})
    if kind == "value_error":
        return str(finding["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return S_("there is no such setting")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        first = S_(f"there is no kind {shortened(context['tag'])}") if "tag" in context else "needs a kind"
        return f"{first}; there are: {', '.join(REWARD_KINDS)}"
    if kind in ("string_too_short", "too_short") and value in ("", []):
        return NEEDS_VALUE
    if kind in _COUNTED:
        word, limit = _COUNTED[kind]
        count = context[limit]
        return S_(f"input should have {word} {count} {'item' if count == 1 else 'items'}, not {context['actual_length']}")
    if kind == "string_type":
        quoted = "" if isinstance(value, (Mapping, list)) else S_(" (text stands in quotes)")
        return S_(f"input should be text, not {shortened(value)}{quoted}")
    field = field_at(finding["loc"], model)
    expected = _EXPECTED.get(kind) or (_allowed(field) if kind == "string_pattern_mismatch" and field else "")
    first = S_(f"input should be {expected}") if expected else f"{finding['msg'][0].lower()}{finding['msg'][1:]}"
    return f"{first}, not {shortened(value)}"


def field_at(location: Sequence[str | int], model: type[BaseModel] = RunConfig) -> FieldInfo | None:
    """The setting that a location leads to: ``("reward", "components", 0, "length", "target")``; None where it leads nowhere."""
    field: FieldInfo | None = None
    for part in location:
        if field is not None and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
        elif isinstance(part, str) and part in REWARD_KINDS:
            model = REWARD_KINDS[part]
            continue
        field = model.model_fields.get(part) if isinstance(part, str) else None
    return field


def _allowed(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    return str(extra.get("allowed", "")) if isinstance(extra, dict) else ""


def shortened(value: Any) -> str:
    """A value as Python writes it, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
