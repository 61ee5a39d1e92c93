"""Evaluations, which train nothing: what one came to, and its risky settings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.settings_rules import settings_finding
from rlhf_studio.analysis.doctor.verdict import Checked, VerdictRules, failure
from rlhf_studio.analysis.evaluation.in_words import each_in_words
from rlhf_studio.analysis.evaluation.report import report_of
from rlhf_studio.analysis.records import Finding, VerdictKind
from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.language import N_, _
from rlhf_studio.units import percent


def _words(checked: Checked[RecordedRun], kind: VerdictKind) -> tuple[str, str]:
    run = checked.run
    done = _("{count:,} of {total:,} steps") if run.total_steps else _("{count:,} steps")
    sentence = _("Evaluated: {done} of prompts are answered.") if run.ended else _("The policies are answering: {done} are done.")
    sentence = sentence.format(done=done.format(count=len(run.steps), total=run.total_steps))
    if run.ended and run.reader is not None and (won := each_in_words(report_of(run.reader))):
        begin = _("Evaluated.") if run.state == "finished" else sentence
        sentence = _("{sentence} {next}").format(sentence=begin, next=won)
    return sentence, _("An evaluation trains nothing; its tables compare the policies.")


VERDICT = VerdictRules(
    kinds=("evaluated",),
    at_each_step=lambda checked: np.zeros(len(checked.run.steps), dtype=np.int8),
    words=_words,
    notes=lambda checked, kind: failure(checked.run),
    without_steps=(N_("No prompt is answered yet."), N_("An evaluation records what each batch of prompts got.")),
)


def risks(config: EvaluationRunConfig) -> Iterator[Finding]:
    """What is risky in the settings of an evaluation."""
    settings = config.evaluation
    if 0 < settings.prompts < 30:
        title = _("{count} prompts tell little").format(count=settings.prompts)
        rule, error = _("fewer than 30 prompts"), percent(1 / settings.prompts**0.5)
        cause = _("A win rate of so few is known to ± {error} at best.").format(error=error)
        changes, setting = {"evaluation.prompts": 128}, f"evaluation.prompts {settings.prompts}"
        advice = _("Fine for a try; take more to decide.")
        yield settings_finding("prompts", "note", title, rule, cause, advice, changes, setting=setting)
