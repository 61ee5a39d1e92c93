"""The tables of settings in docs/settings.md, made from the configuration itself.

``python -m tools.settings_page > docs/settings.md`` writes it; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlhf_studio.config import REWARD_KINDS, STAGE_TITLES, STAGES, USED_ONLY_BY, RunConfig, Stage, StageConfig
from rlhf_studio.config_io import section_model

BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
SECTION_TITLE = "{stage}: {section}"
"""The title of a section that is not one of PPO's."""


def settings_document() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Settings",
        "",
        "Every setting of a run, as the form, `--section.name VALUE` on the command line and the YAML file know it.",
        "`stage` says what a run does: " + ", ".join(f"`{stage}`" for stage in STAGES) + ". A file that does not name it is for PPO.",
        "A setting that not every stage uses names the stages that do.",
        "Made by `python -m tools.settings_page > docs/settings.md`.",
    ]
    lines += _table("The run", "run", StageConfig)
    for section in RunConfig.sections:
        lines += _table(section, section, section_model(section))
    for kind, model in REWARD_KINDS.items():
        lines += _table(f"reward.components: kind {kind}", "", model, leave_out=("kind",))
    for stage, config in STAGES.items():
        if stage != "ppo":
            lines += _stage(stage, config)
    return "\n".join(lines) + "\n"


def own_sections(stage: Stage) -> dict[str, type[BaseModel]]:
    """The sections of a stage that no stage before it in :data:`STAGES` has in the same form, by name."""
    return {section: section_model(section, STAGES[stage]) for section in STAGES[stage].sections if _owner(section, stage) == stage}


def _owner(section: str, stage: Stage) -> Stage:
    """The first stage with the same section, of the same model."""
    model = section_model(section, STAGES[stage])
    return next(other for other, kind in STAGES.items() if section in kind.sections and section_model(section, kind) is model)


def _stage(stage: Stage, config: type[StageConfig]) -> Iterator[str]:
    """A stage other than PPO: which sections it has, and the tables of those that are its own."""
    yield from ("", f"# {STAGE_TITLES[stage]} (`stage: {stage}`)", "", (config.__doc__ or "").strip().replace("``", "`"))
    yield from ("", "Its sections: " + ", ".join(f"`{section}`" for section in config.sections) + ".")
    shared: dict[Stage, list[str]] = {}
    for section in config.sections:
        if (owner := _owner(section, stage)) != stage:
            shared.setdefault(owner, []).append(f"`{section}`")
    for owner, sections in shared.items():
        whole = sections[0] if len(sections) == 1 else f"{', '.join(sections[:-1])} and {sections[-1]}"
        yield f"{whole} {'is' if len(sections) == 1 else 'are'} the same as in the stage `{owner}`, above."
    for section, model in own_sections(stage).items():
        yield from _table(SECTION_TITLE.format(stage=stage, section=section), section, model)


def _table(title: str, section: str, model: type[BaseModel], leave_out: tuple[str, ...] = ()) -> Iterator[str]:
    about = (model.__doc__ or "").strip().replace("``", "`")
    if model is StageConfig:
        about = "What every run has. The settings are in sections; those of PPO follow, then those of the other stages."
    yield from ("", f"## {title}", "", about, "", "| setting | default | allowed | meaning |", "|---|---|---|---|")
    for name, field in model.model_fields.items():
        if name not in leave_out:
            stages = USED_ONLY_BY.get(f"{section}.{name}", ())
            only = f" Used only in the stages {', '.join(stages)}." if len(stages) > 1 else f" Used only in {stages[0]}." if stages else ""
            yield f"| `{name}` | {_default(field)} | {_allowed(field)} | {_meaning(field)}{only} |"


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
