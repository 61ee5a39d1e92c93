"""The diagnosis of a run: all checks, and the verdict."""

from __future__ import annotations

from rlhf_studio.analysis.doctor import checks  # noqa: F401  (registers the checks)
from rlhf_studio.analysis.doctor.check import CHECKS, LEVELS, courses, finding
from rlhf_studio.analysis.doctor.judges import directions
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.run_data import RunCache
from rlhf_studio.analysis.doctor.settings import settings_findings
from rlhf_studio.analysis.doctor.stages import evaluation, ppo, supervised
from rlhf_studio.analysis.doctor.verdict import Checked, VerdictRules, verdict
from rlhf_studio.analysis.records import Diagnosis, Finding
from rlhf_studio.config import Stage
from rlhf_studio.runs.reader import RunReader

VERDICTS: dict[Stage, VerdictRules] = {
    "ppo": ppo.VERDICT,
    "sft": supervised.VERDICT,
    "reward_model": supervised.VERDICT,
    "dpo": supervised.VERDICT,
    "evaluation": evaluation.VERDICT,
}
"""How the verdict on a run of each stage is reached."""


class Doctor:
    """Diagnoses one run again and again, and reads only what is new in it each time. For one thread at a time."""

    def __init__(self, reader: RunReader):
        self._cache = RunCache(reader)

    def diagnose(self, until: int | None = None) -> Diagnosis:
        """As :func:`diagnose`."""
        return diagnosis(self._cache.read(until))


def diagnose(reader: RunReader, until: int | None = None) -> Diagnosis:
    """Find what is wrong with a run, and give a verdict on it.

    Args:
        until: look at the run as it was right after this step; None looks at it as it is now.

    Raises:
        StoreError: the folder is not a run or cannot be read.
    """
    return Doctor(reader).diagnose(until)


def diagnosis(run: RecordedRun) -> Diagnosis:
    """The diagnosis of what was read, by the checks and the verdict of its stage."""
    by_check = courses(run)
    findings = [result for name, course in by_check.items() if (result := finding(run, CHECKS[name], course)) is not None]
    findings += settings_findings(run)
    findings.sort(key=_order)
    newest = int(run.steps[-1]) if len(run.steps) else 0
    return Diagnosis(newest, verdict(VERDICTS[run.config.stage], Checked(run, by_check, findings)), findings, directions(run))


def _order(result: Finding) -> tuple[int, int, str]:
    """Sort key: gravest first, then earliest. Findings about settings come first in their level, because they hold from step 0."""
    return -LEVELS.index(result.level), result.since, result.check
