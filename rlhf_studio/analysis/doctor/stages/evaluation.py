"""Evaluations, which train nothing: what one came to, and its risky settings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.settings_rules import settings_finding
from rlhf_studio.analysis.doctor.verdict import Checked, VerdictRules, failure
from rlhf_studio.analysis.evaluation.in_words import in_words
from rlhf_studio.analysis.evaluation.report import report_of
from rlhf_studio.analysis.records import Finding, VerdictKind
from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.units import percent


def _words(checked: Checked[RecordedRun], kind: VerdictKind) -> tuple[str, str]:
    run = checked.run
    done = f"{len(run.steps):,} of {run.total_steps:,} steps" if run.total_steps else f"{len(run.steps):,} steps"
    sentence = f"Evaluated: {done} of prompts are answered." if run.ended else f"The policies are answering: {done} are done."
    if run.ended and run.reader is not None and (won := in_words(report_of(run.reader))):
        sentence = f"{sentence} {won}" if run.state != "finished" else f"Evaluated. {won}"
    return sentence, "An evaluation trains nothing; its tables compare the policies."


VERDICT = VerdictRules(
    kinds=("evaluated",),
    at_each_step=lambda checked: np.zeros(len(checked.run.steps), dtype=np.int8),
    words=_words,
    notes=lambda checked, kind: failure(checked.run),
    without_steps=("No prompt is answered yet.", "An evaluation records what each batch of prompts got."),
)


def risks(config: EvaluationRunConfig) -> Iterator[Finding]:
    """What is risky in the settings of an evaluation."""
    settings = config.evaluation
    if 0 < settings.prompts < 30:
        title, rule = f"{settings.prompts} prompts tell little", "fewer than 30 prompts"
        cause = f"A win rate of so few is known to ± {percent(1 / settings.prompts**0.5)} at best."
        changes, setting = {"evaluation.prompts": 128}, f"evaluation.prompts {settings.prompts}"
        advice = "Fine for a try; take more to decide."
        yield settings_finding("prompts", "note", title, rule, cause, advice, changes, setting=setting)
