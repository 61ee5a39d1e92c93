"""The table of settings in docs/settings.md, made from the configuration itself.

``python -m tools.settings_page > docs/settings.md`` writes it; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlhf_studio.config import REWARD_KINDS, SECTIONS, RewardTrainingConfig, RunConfig, SFTConfig

BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
STAGES = {"Supervised fine-tuning": SFTConfig, "Reward-model training": RewardTrainingConfig}


def settings_document() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Settings",
        "",
        "Every setting of a run, as the form, `--section.name VALUE` on the command line and the YAML file know it.",
        "Made by `python -m tools.settings_page > docs/settings.md`.",
    ]
    lines += _table("The run", RunConfig, leave_out=SECTIONS)
    for section in SECTIONS:
        lines += _table(section, section_model(section))
    for kind, model in REWARD_KINDS.items():
        lines += _table(f"reward.components: kind {kind}", model, leave_out=("kind",))
    lines += ["", "# Settings of the stages before PPO", "", "They are given in Python: `SFTConfig` and `RewardTrainingConfig`."]
    for title, stage in STAGES.items():
        lines += _table(title, stage)
    return "\n".join(lines) + "\n"


def section_model(section: str) -> type[BaseModel]:
    """The model of one section of the run configuration."""
    annotation = RunConfig.model_fields[section].annotation
    assert isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation


def _table(title: str, model: type[BaseModel], leave_out: tuple[str, ...] = ()) -> Iterator[str]:
    about = (model.__doc__ or "").strip().replace("``", "`")
    yield from ("", f"## {title}", "", about, "", "| setting | default | allowed | meaning |", "|---|---|---|---|")
    for name, field in model.model_fields.items():
        if name not in leave_out:
            yield f"| `{name}` | {_default(field)} | {_allowed(field)} | {_meaning(field)} |"


def _default(field: FieldInfo) -> str:
    """As YAML writes it."""
    value = field.default
    if isinstance(value, list):
        return ", ".join(f"one {item.kind}" for item in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "empty" if value == "" else f"`{value}`".replace("|", "\\|")


def _allowed(field: FieldInfo) -> str:
    limits = {key: getattr(item, key) for item in field.metadata for key in ("min_length", "max_length") if getattr(item, key, None)}
    if get_origin(field.annotation) is list:
        return f"{limits['min_length']} to {limits['max_length']} of the kinds below"
    if choices := get_args(field.annotation):
        return ", ".join(str(choice) for choice in choices)
    if field.annotation is bool:
        return "true, false"
    if field.annotation is str:
        least = f"{limits['min_length']} to " if "min_length" in limits else "at most "
        return _extra(field, "allowed") or f"text, {least}{_number(limits['max_length'])} characters"
    bounds = [(sign, getattr(item, key)) for item in field.metadata for key, sign in BOUNDS.items() if getattr(item, key, None) is not None]
    return ", ".join(f"{sign} {_number(bound)}" for sign, bound in bounds)


def _number(value: float) -> str:
    """1e6 -> 1,000,000; 0.5 -> 0.5."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _meaning(field: FieldInfo) -> str:
    unit = _extra(field, "unit")
    text = (field.description or "").replace("|", "\\|")
    return f"{text} ({unit})" if unit else text


def _extra(field: FieldInfo, key: str) -> Any:
    extra = field.json_schema_extra
    return extra.get(key, "") if isinstance(extra, dict) else ""


if __name__ == "__main__":
    print(settings_document(), end="")
