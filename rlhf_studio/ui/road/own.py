"""A road on a person's own files, as the page asks for it: what the form says, and what would come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlhf_studio.config import Permissions
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.inputs.estimate.speed import SpeedMeasurement
from rlhf_studio.inputs.named_reward import component_named
from rlhf_studio.jobs.road.look import PartLook, look_at, problems_of
from rlhf_studio.jobs.road.own import in_a_line, in_full, require_known
from rlhf_studio.jobs.road.state import OwnSettings
from rlhf_studio.language import _, told
from rlhf_studio.ui import forecast, outlook
from rlhf_studio.ui.sent import member
from rlhf_studio.units import duration, format_bytes

TEXTS = ("policy", "demonstrations", "pairs", "prompts", "reward", "judge")
MOST_CHARACTERS = 4096
Json = dict[str, Any]


def settings_of(data: Any, workspace: Path) -> OwnSettings:
    """What the form says, as settings of a road. Raises :class:`ConfigError` that names its fields."""
    texts = {name: member(data, name) or "" for name in TEXTS}
    wrong = [name for name, text in texts.items() if not isinstance(text, str) or len(text) > MOST_CHARACTERS]
    if wrong:
        raise ConfigError(
            [
                Problem(
                    f"--{name}", _("should be a text of at most {most_characters:,} characters").format(most_characters=MOST_CHARACTERS)
                )
                for name in wrong
            ]
        )
    minutes = member(data, "minutes") or 0
    if isinstance(minutes, bool) or not isinstance(minutes, int | float):
        raise ConfigError([Problem("--minutes", _("should be a number of minutes, or empty for no limit"))])
    given: Json = {name: texts[name].strip() for name in ("policy", "demonstrations", "pairs", "prompts")}
    given |= {name: _component(name, texts[name]) for name in ("reward", "judge")}
    own = in_full(OwnSettings(**given, minutes=float(minutes), anyway=member(data, "anyway") is True), workspace)
    require_known(own)
    return own


def _component(name: str, text: str) -> Json:
    try:
        return component_named(text)
    except ConfigError as error:
        raise ConfigError([Problem(f"--{name}", problem.message) for problem in error.problems]) from None


def looked_at(own: OwnSettings, workspace: Path, permissions: Permissions) -> list[PartLook]:
    """Every part. Raises :class:`ConfigError` for what keeps the road from starting."""
    looks = look_at(own, workspace, permissions)
    if problems := problems_of(looks):
        raise ConfigError(problems)
    return looks


def as_rows(looks: list[PartLook], workspace: Path) -> list[Json]:
    """A row for each part: what it does, how long it may take, what it needs, and what followed from model and file."""
    return [_row(look, workspace) for look in looks]


def problem_rows(problems: list[Problem]) -> list[Json]:
    """What is wrong, each with the field of the form; empty for what belongs to none."""
    rows = []
    for problem in problems:
        field = problem.field.removeprefix("--")
        known = field in (*TEXTS, "minutes")
        rows.append({"field": field if known else "", "text": told(problem.message if known else problem)})
    return rows


def _row(look: PartLook, workspace: Path) -> Json:
    row: Json = {"key": look.part.key, "title": _(look.part.title), "state": look.part.state, "text": told(look.part.headline)}
    if look.config is None or look.report is None:
        return row
    recipes = {recipe.name: recipe for recipe in list_recipes()}
    recipe = recipes.get(look.config.recipe) or next(recipe for recipe in recipes.values() if recipe.stage == look.config.stage)
    memory = look.report.memory_estimate
    beside = (
        _(", and about {more_memory} for the reward model").format(more_memory=format_bytes(look.more_memory)) if look.more_memory else ""
    )
    known = forecast.whole_time(look.config, look.report, recipe, workspace, recipes, SpeedMeasurement(workspace))
    time = _("at most {time}").format(time=duration(60 * look.minutes)) if look.minutes else known["value"]
    return {
        **row,
        "text": outlook.sentence(look.config, recipe, look.report.prompts, look.policies),
        "time": time,
        "memory": f"{forecast.memory_view(memory, look.report.change)['total']}{beside}" if memory else "",
        "fitted": [in_a_line(name, value) for name, value in look.fitted.items()],
        "warnings": [f"{risk['title']} {risk['advice']}" for risk in outlook.risks(look.config, look.report.known)],
    }
