"""Risky settings, before Start and of a run that was started with them. The rules of a stage are in its file in :mod:`.stages`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rlhf_studio.analysis.doctor.check import LEVELS
from rlhf_studio.analysis.doctor.recorded import Recorded
from rlhf_studio.analysis.doctor.stages import evaluation, ppo_settings, supervised_settings
from rlhf_studio.analysis.records import Finding
from rlhf_studio.config import DPORunConfig, EvaluationRunConfig, RewardModelRunConfig, RunConfig, SFTRunConfig, StageConfig


def examine_settings(config: StageConfig) -> list[Finding]:
    """What is risky in a configuration of any stage, the gravest first; empty for the recipes as they are."""
    return sorted(_risks(config), key=lambda one: -LEVELS.index(one.level))


def _risks(config: StageConfig) -> Iterable[Finding]:
    if isinstance(config, RunConfig):
        return ppo_settings.risks(config)
    if isinstance(config, SFTRunConfig | RewardModelRunConfig | DPORunConfig):
        return supervised_settings.risks(config)
    return evaluation.risks(config) if isinstance(config, EvaluationRunConfig) else []


def settings_findings(run: Recorded) -> list[Finding]:
    """What is risky in the settings of a run, with the first and the last step that had them: its settings may change while it goes on.

    ``since`` is 0 for those that it began with. None of a log that does not give its settings.
    """
    if not run.settings_known:
        return []
    found: dict[str, Finding] = {}
    for begin, until in zip(run.begins, [*(step - 1 for step in run.begins[1:]), None], strict=True):
        for one in examine_settings(run.config_at(begin)):
            known = found.get(one.check)
            graver = known is None or LEVELS.index(one.level) > LEVELS.index(known.level)
            found[one.check] = replace(one, since=begin, until=until) if known is None or graver else replace(known, until=until)
    return list(found.values())
