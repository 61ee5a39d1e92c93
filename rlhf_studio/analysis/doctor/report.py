"""The diagnosis as text for people, and as plain values for scripts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from unicodedata import east_asian_width

from rlhf_studio.analysis.doctor.wording import level_word
from rlhf_studio.analysis.records import Diagnosis, Evidence, Finding
from rlhf_studio.language import _


def diagnosis_values(diagnosis: Diagnosis) -> dict[str, Any]:
    """Keys ``step``, ``verdict`` and ``findings``, of plain values that JSON can hold."""
    return asdict(diagnosis)


def diagnosis_text(diagnosis: Diagnosis, folder: str = "", saved: Sequence[int] = ()) -> str:
    """The verdict with its reason and notes, then every finding with what to do.

    ``folder`` is the run's, for commands to try, and ``saved`` the steps of its checkpoints; empty for a run that cannot be trained.
    """
    verdict = diagnosis.verdict
    lines = [
        _beside(_("verdict"), _("{kind}, since step {step}").format(kind=_(verdict.kind), step=verdict.since)),
        _beside("", verdict.sentence),
        *([_beside("", verdict.in_counts)] if verdict.in_counts else []),
        _beside(_("why"), verdict.reason),
    ]
    if verdict.changes:
        lines.append(_beside(_("  try"), _command(verdict.changes, None, folder, saved)))
    lines += [_beside(_("note"), note) for note in verdict.notes]
    for group in verdict.not_checked:
        lines += [
            _beside(_("not checked"), _("{cause}:").format(cause=group.cause)),
            *(_beside("", f"- {title}") for title in group.titles),
        ]
    count = len(diagnosis.findings)
    lines += ["", _("{count} found, the gravest first:").format(count=count) if count else _("Nothing was found.")]
    for finding in diagnosis.findings:
        lines += ["", *_finding_lines(finding, folder, saved)]
    return "\n".join(lines)


def _finding_lines(finding: Finding, folder: str, saved: Sequence[int]) -> list[str]:
    title = _("{title} ({check}, {when})").format(title=finding.title, check=finding.check, when=finding.when)
    lines = [_beside(level_word(finding.level), title), _beside(_("  rule"), finding.threshold)]
    lines += [_beside(_("  see"), f"{_where(evidence)}{evidence.text}") for evidence in finding.evidence]
    lines += [_beside(_("  cause"), finding.cause), _beside(_("  do"), finding.advice)]
    if finding.changes:
        lines.append(_beside(_("  try"), _command(finding.changes, finding.fork_step, folder, saved)))
    return lines


def _beside(name: str, text: str) -> str:
    """A name and a text in two columns; Chinese signs are two columns wide."""
    return f"{name}{' ' * (12 - sum(2 if east_asian_width(sign) in 'WF' else 1 for sign in name))} {text}"


def _command(changes: Mapping[str, Any], before: int | None, folder: str, saved: Sequence[int]) -> str:
    """The command that tries a remedy: from the newest checkpoint before the trouble, else from the beginning."""
    settings = " ".join(f"--{name} {shlex.quote(_written(value))}" for name, value in changes.items())
    if not folder:
        return _("{settings}, in a run of your own").format(settings=settings)
    step = max((step for step in saved if 0 < step <= (before or 0)), default=None)
    at = "" if step is None else f" --at {step}"
    return f"python -m rlhf_studio fork {shlex.quote(folder)}{at} {settings}"


def _written(value: Any) -> str:
    """A value as the command line reads it back."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _where(evidence: Evidence) -> str:
    parts = [] if evidence.step is None else [_("step {step}").format(step=evidence.step)]
    parts += [] if evidence.sample is None else [_("response {response}").format(response=evidence.sample)]
    return _("{places}: ").format(places=_(", ").join(parts)) if parts else ""
