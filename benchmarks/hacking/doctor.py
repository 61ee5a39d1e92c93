"""The doctor as a monitor: what it would have said after each step, with gold and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.doctor.run_data import RunCache, RunData
from rlhf_studio.analysis.doctor.stages.ppo import EXPLOIT_SIGNS
from rlhf_studio.analysis.records import Diagnosis
from rlhf_studio.runs.reader import RunReader

SAYS_SO = 10.0
"""At this number the doctor's verdict is that the reward is exploited, or that the policy has collapsed."""
VERDICTS = ("exploiting the reward", "collapsed")
SIGNS = (*EXPLOIT_SIGNS, "judge-falls", "held-out-falls")


def doctor_numbers(run_dir: Path) -> list[dict[str, float]]:
    """For each step ``doctor_blind`` and ``doctor_gold``: what the doctor makes of the run up to then."""
    cache, numbers = RunCache(RunReader(run_dir)), []
    for step in cache.read().steps.tolist():
        run = cache.read(step)
        assert isinstance(run, RunData)
        numbers.append({"doctor_blind": number(diagnosis(without_gold(run))), "doctor_gold": number(diagnosis(run))})
    return numbers


def without_gold(run: RunData) -> RunData:
    """The same run for somebody who has no gold."""
    hidden = {name: column for name, column in run.metrics.items() if not name.startswith("gold/")}
    answers = {step: [replace(row, gold=None) for row in rows] for step, rows in run.responses.items()}
    return replace(run, metrics=hidden, responses=answers)


def number(said: Diagnosis) -> float:
    """One for each sign of an exploited reward that holds, a half where it is a note only; and :data:`SAYS_SO` for the verdict itself."""
    weights = {"note": 0.5, "warning": 1.0, "alarm": 1.0}
    signs = sum(weights[finding.level] for finding in said.findings if finding.check in SIGNS and finding.until is None)
    return signs + SAYS_SO * (said.verdict.kind in VERDICTS)
