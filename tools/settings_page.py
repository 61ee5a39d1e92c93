"""The lists of settings in docs/settings.md, made from the configuration itself.

``python -m tools.settings_page > docs/settings.md`` writes it; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlhf_studio.config import REWARD_KINDS, STAGE_TITLES, STAGES, USED_ONLY_BY, RunConfig, Stage, StageConfig
from rlhf_studio.config.io import section_model
from rlhf_studio.config.reward_base import Component

MOST = 40_000
"""A larger upper bound only keeps nonsense out, and is not printed; the error of a larger value names it."""
EVERY_KIND = "reward.components: every kind"
SECTION_TITLE = "{stage}: {section}"
"""The title of a section that is not one of PPO's."""


def settings_document() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Settings",
        "",
        "Every setting of a run, as the form, `--section.name VALUE` on the command line and the YAML file know it.",
        "`stage` says what a run does: " + ", ".join(f"`{stage}`" for stage in STAGES) + ". A file that does not name it is for PPO.",
        "In brackets stands the default; behind it the choices that the text does not name, and limits that may be met.",
        "Made by `python -m tools.settings_page > docs/settings.md`.",
    ]
    lists = Lists()
    lines += lists.lines("The run", "run", StageConfig)
    for section in RunConfig.sections:
        lines += lists.lines(section, section, section_model(section))
    lines += lists.lines(EVERY_KIND, "", Component)
    for kind, model in REWARD_KINDS.items():
        lines += lists.lines(f"reward.components: kind {kind}", "", model)
    for stage, config in STAGES.items():
        if stage != "ppo":
            lines += _stage(stage, config, lists)
    return "\n".join(lines) + "\n"


def own_sections(stage: Stage) -> dict[str, type[BaseModel]]:
    """The sections of a stage that no stage before it in :data:`STAGES` has in the same form, by name."""
    return {section: section_model(section, STAGES[stage]) for section in STAGES[stage].sections if _owner(section, stage) == stage}


def _owner(section: str, stage: Stage) -> Stage:
    """The first stage with the same section, of the same model."""
    model = section_model(section, STAGES[stage])
    return next(other for other, kind in STAGES.items() if section in kind.sections and section_model(section, kind) is model)


def _stage(stage: Stage, config: type[StageConfig], lists: Lists) -> Iterator[str]:
    """A stage other than PPO: which sections it has, and the lists of those that are its own."""
    yield from ("", f"# {STAGE_TITLES[stage]} (`stage: {stage}`)", "", (config.__doc__ or "").strip().replace("``", "`"))
    shared: dict[Stage, list[str]] = {}
    for section in config.sections:
        if (owner := _owner(section, stage)) != stage:
            shared.setdefault(owner, []).append(f"`{section}`")
    same = "; ".join(f"{', '.join(sections)} as in the stage `{owner}`" for owner, sections in shared.items())
    yield f"Its sections: {same}; and those that follow."
    for section, model in own_sections(stage).items():
        yield from lists.lines(SECTION_TITLE.format(stage=stage, section=section), section, model)


class Lists:
    """The lists in the order of the page. A row that an earlier list has, word for word, is named and not repeated."""

    def __init__(self) -> None:
        self.title_of_row: dict[str, str] = {}
        """The title of the first list with a row, by row."""

    def lines(self, title: str, section: str, model: type[BaseModel]) -> Iterator[str]:
        """The heading, what the section is about, and its rows."""
        about = (model.__doc__ or "").strip().replace("``", "`")
        if model is StageConfig:
            about = "What every run has. The settings are in sections; those of PPO follow, then those of the other stages."
        if model is Component:
            about = "What each component of the reward has, beside the settings of its kind."
        rows = {name: _row(section, name, field) for name, field in model.model_fields.items() if section or name != "kind"}
        again: dict[str, list[str]] = {}
        for name, row in rows.items():
            if (before := self.title_of_row.get(row)) and before != EVERY_KIND:
                again.setdefault(before, []).append(f"`{name}`")
        new = [row for row in rows.values() if row not in self.title_of_row]
        yield from ("", f"## {title}", "", about)
        yield from (f"As in {before}: {', '.join(names)}." for before, names in again.items())
        if new:
            yield from ("", *new)
        self.title_of_row |= dict.fromkeys(new, title)


def _row(section: str, name: str, field: FieldInfo) -> str:
    stages = USED_ONLY_BY.get(f"{section}.{name}", ())
    others = [stage for stage in STAGES if stage not in stages]
    only = f" Not in {others[0]}." if len(others) == 1 else f" Only in {', '.join(stages)}." if stages else ""
    meaning = _meaning(field)
    allowed = _allowed(field, meaning)
    return f"- `{name}` ({_default(field)}{'; ' if allowed else ''}{allowed}): {meaning}{only}"


def _default(field: FieldInfo) -> str:
    """As YAML writes it."""
    value = field.default
    if isinstance(value, list):
        return ", ".join(f"one {item.kind}" for item in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "empty" if value == "" else f"`{value}`"


def _allowed(field: FieldInfo, meaning: str) -> str:
    """Choices that the meaning does not name, and bounds that a person may meet."""
    if get_origin(field.annotation) is list or field.annotation is bool:
        return ""
    if choices := get_args(field.annotation):
        others = (choice for choice in choices if choice != field.default)
        unnamed = [choice for choice in others if not re.search(rf"\b{re.escape(str(choice))}\b", meaning)]
        return ", ".join(str(choice) for choice in choices) if unnamed else ""
    if field.annotation is str:
        return str(_extra(field, "allowed"))
    least = next((("" if sign == "ge" else ">") + _number(bound) for sign, bound in _bounds(field) if sign in ("ge", "gt")), "")
    most = next(
        (("" if sign == "le" else "<") + _number(bound) for sign, bound in _bounds(field) if sign in ("le", "lt") and bound <= MOST), ""
    )
    if most:
        return f"{least}…{most}"
    return "" if least == "0" else least if least.startswith(">") else f"≥{least}"


def _bounds(field: FieldInfo) -> Iterator[tuple[str, float]]:
    for item in field.metadata:
        for sign in ("ge", "gt", "le", "lt"):
            if (bound := getattr(item, sign, None)) is not None:
                yield sign, bound


def _number(value: float) -> str:
    """1e6 -> 1,000,000; 0.5 -> 0.5."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _meaning(field: FieldInfo) -> str:
    unit = str(_extra(field, "unit"))
    text = field.description or ""
    return f"{text} ({unit})" if unit and unit not in text else text


def _extra(field: FieldInfo, key: str) -> Any:
    extra = field.json_schema_extra
    return extra.get(key, "") if isinstance(extra, dict) else ""


if __name__ == "__main__":
    print(settings_document(), end="")
