"""Risky settings, before Start and in a run. The rules of each stage are in its file in :mod:`.stages`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rlhf_studio.analysis.doctor.check import LEVELS
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.stages import evaluation, ppo_settings, supervised_settings
from rlhf_studio.analysis.records import Finding
from rlhf_studio.config import DPORunConfig, EvaluationRunConfig, RewardModelRunConfig, RunConfig, SFTRunConfig, StageConfig
from rlhf_studio.config.fitting import NOTHING_KNOWN, Known


def examine_settings(config: StageConfig, known: Known = NOTHING_KNOWN) -> list[Finding]:
    """What is risky in a configuration of any stage, the gravest first; empty for the recipes as they are.

    ``known``: what is known of the model and the data.
    """
    return sorted(_risks(config, known), key=lambda finding: -LEVELS.index(finding.level))


def _risks(config: StageConfig, known: Known) -> Iterable[Finding]:
    if isinstance(config, RunConfig):
        return ppo_settings.risks(config, known)
    if isinstance(config, SFTRunConfig | RewardModelRunConfig | DPORunConfig):
        return supervised_settings.risks(config, known)
    return evaluation.risks(config) if isinstance(config, EvaluationRunConfig) else []


def settings_findings(run: RecordedRun) -> list[Finding]:
    """What is risky in the settings of a run, with the first and the last step that had them: settings may change during a run.

    ``since`` is 0 for the settings of the start. Empty for a log that does not give its settings.
    """
    if not run.settings_known:
        return []
    known = Known(weights=run.weights, device="cuda" if run.device.startswith("cuda") else "cpu")
    by_check: dict[str, Finding] = {}
    for begin, until in zip(run.begins, [*(step - 1 for step in run.begins[1:]), None], strict=True):
        for finding in examine_settings(run.config_at(begin), known):
            if finding.check == "settings-held-out" and not run.origin.knows("data.eval"):
                continue  # a program holds its prompts in memory, and may evaluate on others
            earlier = by_check.get(finding.check)
            graver = earlier is None or LEVELS.index(finding.level) > LEVELS.index(earlier.level)
            gravest = replace(finding, since=begin) if earlier is None or graver else earlier
            by_check[finding.check] = replace(gravest, until=until)
    return list(by_check.values())
