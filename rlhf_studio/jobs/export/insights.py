"""What the analyses say of a run. Exports ask them here alone."""

from __future__ import annotations

from rlhf_studio.analysis.records import Diagnosis, Learned
from rlhf_studio.runs.reader import RunReader


def diagnosis_of(reader: RunReader) -> Diagnosis:
    """The doctor's verdict and findings."""
    from rlhf_studio.analysis.doctor import diagnose

    return diagnose(reader)


def learned_of(reader: RunReader) -> Learned:
    """What changed between the first steps and the newest ones."""
    from rlhf_studio.analysis.learned import what_was_learned

    return what_was_learned(reader)
