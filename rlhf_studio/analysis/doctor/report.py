"""The diagnosis as text for people, and as plain values for scripts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlhf_studio.analysis.records import Diagnosis, Evidence, Finding


def diagnosis_values(diagnosis: Diagnosis) -> dict[str, Any]:
    """Keys ``step``, ``verdict`` and ``findings``, of plain values that JSON can hold."""
    return asdict(diagnosis)


def diagnosis_text(diagnosis: Diagnosis, folder: str = "", saved: Sequence[int] = ()) -> str:
    """The verdict with its reason and notes, then every finding with what to do.

    ``folder`` is the run's, for commands to try, and ``saved`` the steps of its checkpoints; empty for a run that cannot be trained.
    """
    verdict = diagnosis.verdict
    lines = [
        f"verdict      {verdict.kind}, since step {verdict.since}",
        f"             {verdict.sentence}",
        *([f"             {verdict.in_counts}"] if verdict.in_counts else []),
        f"why          {verdict.reason}",
    ]
    lines += [f"note         {note}" for note in verdict.notes]
    for group in verdict.not_checked:
        lines += [f"not checked  {group.cause}:", *(f"             - {title}" for title in group.titles)]
    lines += ["", "Nothing was found." if not diagnosis.findings else f"{len(diagnosis.findings)} found, the gravest first:"]
    for finding in diagnosis.findings:
        lines += ["", *_finding_lines(finding, folder, saved)]
    return "\n".join(lines)


def _finding_lines(finding: Finding, folder: str, saved: Sequence[int]) -> list[str]:
    lines = [f"{finding.level:12} {finding.title} ({finding.check}, {finding.when})", f"  rule       {finding.threshold}"]
    lines += [f"  see        {_where(evidence)}{evidence.text}" for evidence in finding.evidence]
    lines += [f"  cause      {finding.cause}", f"  do         {finding.advice}"]
    if finding.changes:
        lines.append(f"  try        {_command(finding, folder, saved)}")
    return lines


def _command(finding: Finding, folder: str, saved: Sequence[int]) -> str:
    """The command that tries a remedy: from the newest checkpoint before the trouble, else from the beginning."""
    settings = " ".join(f"--{name} {shlex.quote(_written(value))}" for name, value in finding.changes.items())
    if not folder:
        return f"{settings}, in a run of your own"
    step = max((step for step in saved if 0 < step <= (finding.fork_step or 0)), default=None)
    at = "" if step is None else f" --at {step}"
    return f"python -m rlhf_studio fork {shlex.quote(folder)}{at} {settings}"


def _written(value: Any) -> str:
    """A value as the command line reads it back."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _where(evidence: Evidence) -> str:
    parts = [f"{name} {value}" for name, value in (("step", evidence.step), ("response", evidence.sample)) if value is not None]
    return f"{', '.join(parts)}: " if parts else ""
