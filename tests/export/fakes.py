"""What the analyses might say of a run, hostile texts included: exports are tested without the analyses themselves."""

from __future__ import annotations

import pytest

from rlhf_studio.analysis.records import Diagnosis, Evidence, Finding, Gap, Learned, Phrase, TokenShift, Trait, Verdict
from rlhf_studio.jobs.export import insights
from rlhf_studio.runs.reader import RunReader

BAD = "<script>window.__pwned=1</script>${window.__pwned=2}{{x}}\u202e\x00\ud800[a](javascript:alert(1))|`"


def diagnosis_of(reader: RunReader) -> Diagnosis:
    """One finding of each level that matters here."""
    verdict = Verdict("improved", f"The score rose from 0.1 to 1.2. {BAD}", "Rule: more than two standard errors.", [f"note {BAD}"], 3)
    finding = Finding(
        "phrase", "warning", f"One phrase takes over {BAD}", 4, "more than half of the responses", [Evidence(f"15 of 16 {BAD}", 5, 2, 3)],
        "The reward likes it.", "Raise the KL coefficient.", {"ppo.kl_coef": 0.2}, 3,
    )  # fmt: skip
    return Diagnosis(reader.status().step, verdict, [finding])


def learned_of(reader: RunReader) -> Learned:
    """One of each."""
    return Learned(
        (1, 2),
        (4, 5),
        [Phrase(f"A masterpiece {BAD}", "opening", 1, 16, 15, 16, 4.2, 5.1, [(5, 0)])],
        [Trait("length", "Mean length", "tokens", 20.0, 30.5)],
        [Gap(5, 1, "score", "gold", 2.11, 0.0, f"response {BAD}")],
        [TokenShift(0, 3, f"the film {BAD}", " good", 0.1, 0.9)],
        [TokenShift(0, 4, "the film was", " bad", 0.5, 0.01)],
    )


def install(patch: pytest.MonkeyPatch) -> None:
    """Let exports ask these instead of the analyses."""
    patch.setattr(insights, "diagnosis_of", diagnosis_of)
    patch.setattr(insights, "learned_of", learned_of)
