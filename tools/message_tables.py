"""Sentences that stand in tables of the program, where no function marks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from pydantic.fields import FieldInfo

from rlhf_studio.analysis.doctor import checks  # noqa: F401  (registers the checks)
from rlhf_studio.analysis.doctor.check import CHECKS
from rlhf_studio.analysis.records import VerdictKind
from rlhf_studio.config import REWARD_KINDS, STAGE_TITLES, STAGES
from rlhf_studio.config.glossary import GLOSSARY, IN_WORDS
from rlhf_studio.config.io import section_model, walk_fields
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.trl.table import SECTIONS, groups, names, options
from rlhf_studio.ui.form import SECTION_TITLES, intro_of
from rlhf_studio.ui.live.charts import CHARTS, QUANTITIES

UNITS = "ui/assets/shared/tips.js"  # scripts translate units, see unitWords


def tables() -> Iterator[tuple[str, str]]:
    """Each as its file, from ``rlhf_studio/`` on, and its text; twice where two tables have it."""
    for place, text in (*_units(), *_glossary(), *_charts(), *_checks(), *_settings(), *_recipes(), *_options_of_trl()):
        if text:
            yield place, text


def _units() -> Iterator[tuple[str, str]]:
    yield "ui/assets/replay/tokens.js", "advantage"
    for unit in ("token", "tokens", "word", "words"):
        yield "ui/assets/shared/tokens.js", unit
    for term in (*GLOSSARY.values(), *IN_WORDS.values()):
        yield UNITS, term.unit
    for kind in get_args(VerdictKind):
        yield "ui/assets/runs/columns.js", kind
    for chart in CHARTS:
        yield from ((UNITS, unit) for unit in (chart.left, chart.right, chart.shares))


def _glossary() -> Iterator[tuple[str, str]]:
    for term in (*GLOSSARY.values(), *IN_WORDS.values()):
        yield from (("config/glossary.py", text) for text in (term.title, term.meaning, term.good))


def _settings() -> Iterator[tuple[str, str]]:
    yield from (("ui/form.py", title) for title in SECTION_TITLES.values())
    yield from (("config/stage.py", title) for title in STAGE_TITLES.values())
    for stage in STAGES.values():
        for _name, info in walk_fields(stage):
            yield from _field(info)
        yield from (("config/", intro_of(section_model(section, stage))) for section in stage.sections)
    for kind in REWARD_KINDS.values():
        yield from (("config/", text) for text in (kind.title, kind.group, intro_of(kind)))
        for info in kind.model_fields.values():
            yield from _field(info)


def _field(info: FieldInfo) -> Iterator[tuple[str, str]]:
    extra = info.json_schema_extra
    yield from (("config/", text) for text in (info.title or "", info.description or ""))
    yield "ui/assets/train/form.js", str(extra.get("unit", "")) if isinstance(extra, dict) else ""


def _recipes() -> Iterator[tuple[str, str]]:
    for recipe in list_recipes():
        yield from (
            ("config/recipes/", text) for text in (recipe.title, recipe.summary, recipe.first, recipe.writes, recipe.watch, recipe.gpu)
        )


def _charts() -> Iterator[tuple[str, str]]:
    for chart in CHARTS:
        yield from (("ui/live/charts.py", text) for text in (chart.title, chart.alone))
    yield from (("ui/live/charts.py", quantity.label) for quantity in QUANTITIES)
    yield from (("config/metrics/table.py", metric.tile.label) for metric in METRICS if metric.tile)


def _checks() -> Iterator[tuple[str, str]]:
    for check in CHECKS.values():
        yield from (("analysis/doctor/check.py", text) for text in (check.title, check.rule, check.cause, check.advice))


def _options_of_trl() -> Iterator[tuple[str, str]]:
    for section in SECTIONS:
        yield from (("trl/table.yaml", option.note) for option in options(section.name))
    yield from (("trl/table.yaml", group.sentence) for group in groups())
    yield from (("trl/table.yaml", text) for row in names() for text in (row.what, row.note))
