"""The verdict on a run, in one sentence. Every stage has its own rules and words for it.

The verdict is worked out for every step from what was known then, so that it also has the step since which it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from rlhf_studio.analysis.doctor.check import AGAINST_SETTINGS, CHECKS, Course
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.series import ALARM, WARNING
from rlhf_studio.analysis.doctor.wording import as_sentence, lowered
from rlhf_studio.analysis.records import OF_SETTINGS, Finding, NotChecked, Verdict, VerdictKind
from rlhf_studio.language import N_, _

Run = TypeVar("Run", bound=RecordedRun)


@dataclass(frozen=True)
class Checked(Generic[Run]):
    """A run with the results of its checks: ``courses`` at every step, by the check's name, and the ``findings``."""

    run: Run
    courses: Mapping[str, Course]
    findings: Sequence[Finding]

    def level(self, check: str) -> np.ndarray:
        """The level of a check at every step, shape (S,); 0 everywhere for a check whose data is missing."""
        course = self.courses.get(check)
        return np.zeros(len(self.run.steps), dtype=np.int8) if course is None else course.levels

    def at_newest(self, checks: Sequence[str], level: int = WARNING) -> list[str]:
        """Which of these checks are at this level or a graver one at the newest step."""
        return [check for check in checks if self.level(check)[-1] >= level]

    @property
    def lasting(self) -> list[Finding]:
        """The findings that still hold at the newest step."""
        return [finding for finding in self.findings if finding.until is None]

    @property
    def died_of_its_numbers(self) -> bool:
        """Whether the run failed, and its newest numbers are not finite."""
        return self.run.state == "failed" and bool(self.at_newest(["not-finite"], ALARM))


@dataclass(frozen=True)
class VerdictRules:
    """How the verdict on a run of one stage is reached.

    Attributes:
        kinds: what a verdict can be while the run goes on.
        at_each_step: the number of the kind in ``kinds`` at each step, shape (S,).
        words: the sentence, and the reason, for the kind at the newest step.
        notes: what stands beside the verdict.
        in_counts: the sentence in answers, where a stage has one.
        changes: settings that the next run should try.
        when_over: instead of a kind, when the run is over.
        without_steps: sentence and reason of a run that has no step, in English.
    """

    kinds: tuple[VerdictKind, ...]
    at_each_step: Callable[[Checked[Any]], np.ndarray]
    words: Callable[[Checked[Any], VerdictKind], tuple[str, str]]
    notes: Callable[[Checked[Any], VerdictKind], list[str]]
    in_counts: Callable[[Checked[Any], VerdictKind], str] = lambda checked, kind: ""
    changes: Callable[[Checked[Any], VerdictKind], dict[str, Any]] = lambda checked, kind: {}
    when_over: Mapping[VerdictKind, VerdictKind] = field(default_factory=dict)
    without_steps: tuple[str, str] = (N_("Too early to say: no step is recorded yet."), N_("A verdict needs recorded steps."))


def verdict(rules: VerdictRules, checked: Checked[Any]) -> Verdict:
    """The verdict on a run by the rules of its stage."""
    run = checked.run
    if not len(run.steps):
        return Verdict("too early", _(rules.without_steps[0]), _(rules.without_steps[1]), failure(run))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        kinds = rules.at_each_step(checked)
        differing = np.flatnonzero(kinds != kinds[-1])
        since = int(run.steps[differing[-1] + 1 if len(differing) else 0])
        kind = rules.kinds[int(kinds[-1])]
        kind = rules.when_over.get(kind, kind) if run.over else kind
        in_counts, notes, changes = rules.in_counts(checked, kind), rules.notes(checked, kind), rules.changes(checked, kind)
        return Verdict(kind, *rules.words(checked, kind), notes, since, in_counts, changes, _not_checked(checked))


def _not_checked(checked: Checked[Any]) -> list[NotChecked]:
    """The checks that could not be made of a run that another program has recorded, as far as it did; empty for our own."""
    run = checked.run
    if run.settings_known:
        return []
    own = [name for name, registered in CHECKS.items() if run.config.stage in registered.stages]
    missing = [name for name in own if name not in checked.courses and name not in AGAINST_SETTINGS]
    by_cause = {_("Numbers not recorded"): missing, _("Settings not all known"): [name for name in own if name in AGAINST_SETTINGS]}
    return [NotChecked(cause, [lowered(_(CHECKS[name].title)) for name in names]) for cause, names in by_cause.items() if names]


def failure(run: RecordedRun) -> list[str]:
    """A note with the first sentence of why a run failed; empty for a run that did not fail."""
    if run.state != "failed":
        return []
    cause = re.split(r"(?<=[.;:])\s", run.cause)[0].rstrip(".;:")
    return [_("The run failed: {cause}.").format(cause=cause)]


def risky_settings(findings: Sequence[Finding]) -> list[str]:
    """Notes about settings that may have spoilt a run, with their steps where they were changed later."""
    risky = [finding for finding in findings if finding.check.startswith(OF_SETTINGS) and finding.level != "note"]
    titles = [
        finding.title if finding.until is None else _("{title} ({when})").format(title=finding.title, when=finding.when)
        for finding in risky
    ]
    return [as_sentence(title) for title in titles]
