"""Whether a metric means the same in several runs: scores that other rewards gave are not ranked, nor losses on other examples."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cache

from rlhf_studio.analysis.compare.records import SettingRow
from rlhf_studio.analysis.compare.wording import fields_of, teaches
from rlhf_studio.config import STAGES
from rlhf_studio.config.metrics.stages import HEADLINES
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.language import N_, _
from rlhf_studio.runs.reader import RunReader

GOLD, SCORE = "gold/score", "objective/scores"
_POINTS = frozenset(metric.name for metric in METRICS if metric.unit == "points")
_HEADLINES = frozenset(name for headline in HEADLINES.values() for name in headline.names)


def _judge_of(metric: str) -> tuple[str, str]:
    """The section of the settings that say what a metric's numbers mean, and what these settings name; empty where no setting does."""
    if metric in _HEADLINES - {GOLD, SCORE}:
        return "data", N_("the held-out examples are")  # which these are comes from the data
    if metric == GOLD:
        return "reward", N_("the gold scorer is")
    return ("reward", N_("the reward is")) if metric in _POINTS or metric.startswith("reward/") else ("", "")


def judged_differently(rows: Sequence[SettingRow], metric: str) -> bool:
    """Whether the runs' values of this metric are known to come from different judges."""
    section, _what = _judge_of(metric)
    settings = [row.setting for row in rows if teaches(row.setting) and row.differs() and row.setting.startswith(f"{section}.")]
    return bool(section) and any((setting == "reward.gold") == (metric == GOLD) for setting in settings)


def of_one_scale(readers: Sequence[RunReader], recorded: Sequence[Set[str]], metrics: Sequence[str]) -> list[str]:
    """The metrics that are known to mean the same in all runs that have ``recorded`` them."""
    knows = cache(lambda run, section, gold: _knows_judge(readers[run], section, GOLD if gold else ""))
    alike = []
    for metric in metrics:
        section, _what = _judge_of(metric)
        those = [run for run, names in enumerate(recorded) if metric in names]
        if len(those) < 2 or not section or all(knows(run, section, metric == GOLD) for run in those):
            alike.append(metric)
    return alike


def not_one_scale(readers: Sequence[RunReader], metric: str) -> str:
    """Why the values of a metric are not ranked, as a sentence; empty where one judge is known to have given all."""
    section, judge = _judge_of(metric)
    if len(readers) < 2 or not section or all(_knows_judge(reader, section, metric) for reader in readers):
        return ""
    what = (
        _(
            "These runs are not ranked, because it is not known whether {judge} the same: points of one run may be worth something else "
            "in another."
        )
        if section == "reward"
        else _("These runs are not ranked, because it is not known whether {judge} the same: they may be other examples in each.")
    )
    return what.format(judge=_(judge))


def _knows_judge(reader: RunReader, section: str, metric: str) -> bool:
    origin, kind = reader.origin(), STAGES[reader.config().stage]
    if section not in kind.sections:
        return origin.settings_known
    names = ["gold"] if metric == GOLD else [name for name in fields_of(kind, section) if f"{section}.{name}" != "reward.gold"]
    return all(origin.knows(f"{section}.{name}") for name in names)
