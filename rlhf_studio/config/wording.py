"""What is wrong with a value, in words: pydantic's findings as one sentence that says which values are allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlhf_studio.config.reward import REWARD_KINDS
from rlhf_studio.config.run import RunConfig

NEEDS_VALUE = "needs a value"
"""Said of a setting that is empty and must not be."""
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "settings as 'name: value'",
    "model_attributes_type": "settings as 'name: value'",
    "dict_type": "settings as 'name: value'",
}
_COUNTED = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}


def sentence(finding: Mapping[str, Any], model: type[BaseModel] = RunConfig) -> str:
    """One entry of ``ValidationError.errors()`` of ``model`` as a sentence without a final stop."""
    kind, value, context = finding["type"], finding["input"], finding.get("ctx", {})
    if kind == "value_error":
        return str(finding["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return "there is no such setting"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        first = f"there is no kind {shortened(context['tag'])}" if "tag" in context else "needs a kind"
        return f"{first}; there are: {', '.join(REWARD_KINDS)}"
    if kind in ("string_too_short", "too_short") and value in ("", []):
        return NEEDS_VALUE
    if kind in _COUNTED:
        word, limit = _COUNTED[kind]
        count = context[limit]
        return f"input should have {word} {count} {'item' if count == 1 else 'items'}, not {context['actual_length']}"
    if kind == "string_type":
        quoted = "" if isinstance(value, (Mapping, list)) else " (text stands in quotes)"
        return f"input should be text, not {shortened(value)}{quoted}"
    field = field_at(finding["loc"], model)
    expected = _EXPECTED.get(kind) or (_allowed(field) if kind == "string_pattern_mismatch" and field else "")
    first = f"input should be {expected}" if expected else f"{finding['msg'][0].lower()}{finding['msg'][1:]}"
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
