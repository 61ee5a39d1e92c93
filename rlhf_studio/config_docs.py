"""The table of settings in docs/settings.md, made from the configuration itself.

``python -m rlhf_studio.config_docs > docs/settings.md`` writes it; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlhf_studio.config import SECTIONS, Component, RunConfig

BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def settings_document() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Settings",
        "",
        "Every setting of a run, as the form, `--section.name VALUE` on the command line and the YAML file know it.",
        "Made by `python -m rlhf_studio.config_docs > docs/settings.md`.",
    ]
    for section in SECTIONS:
        lines += _table(section, _section_model(section))
    for kind in Component.__subclasses__():
        lines += _table(f"reward.components: kind {kind.model_fields['kind'].default}", kind)
    return "\n".join(lines) + "\n"


def _section_model(section: str) -> type[BaseModel]:
    annotation = RunConfig.model_fields[section].annotation
    assert isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation


def _table(title: str, model: type[BaseModel]) -> Iterator[str]:
    yield from ("", f"## {title}", "", (model.__doc__ or "").strip(), "", "| setting | default | allowed | meaning |", "|---|---|---|---|")
    for name, field in model.model_fields.items():
        if name not in ("kind", "components"):
            yield f"| `{name}` | {_default(field)} | {_allowed(field)} | {_meaning(field)} |"


def _default(field: FieldInfo) -> str:
    return "empty" if field.default == "" else f"`{field.default}`".replace("|", "\\|")


def _allowed(field: FieldInfo) -> str:
    choices = get_args(field.annotation)
    if choices:
        return ", ".join(str(choice) for choice in choices)
    if field.annotation is bool:
        return "true, false"
    if field.annotation is str:
        return "text"
    limits = [
        f"{sign} {getattr(item, key):g}" for item in field.metadata for key, sign in BOUNDS.items() if getattr(item, key, None) is not None
    ]
    return ", ".join(limits)


def _meaning(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    unit = extra.get("unit") if isinstance(extra, dict) else ""
    text = (field.description or "").replace("|", "\\|")
    return f"{text} ({unit})" if unit else text


if __name__ == "__main__":
    print(settings_document(), end="")
