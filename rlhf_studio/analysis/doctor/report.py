"""The diagnosis as text for people, and as plain values for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rlhf_studio.analysis.records import Diagnosis, Evidence, Finding


def diagnosis_values(diagnosis: Diagnosis) -> dict[str, Any]:
    """Keys ``step``, ``verdict`` and ``findings``, of plain values that JSON can hold."""
    return asdict(diagnosis)


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """The verdict with its reason and notes, then every finding with what to do."""
    verdict = diagnosis.verdict
    lines = [
        f"verdict      {verdict.kind}, since step {verdict.since}",
        f"             {verdict.sentence}",
        f"why          {verdict.reason}",
    ]
    lines += [f"note         {note}" for note in verdict.notes]
    lines += ["", "Nothing was found." if not diagnosis.findings else f"{len(diagnosis.findings)} found, the gravest first:"]
    for one in diagnosis.findings:
        lines += ["", *_finding_lines(one)]
    return "\n".join(lines)


def _finding_lines(one: Finding) -> list[str]:
    lines = [f"{one.level:12} {one.title} ({one.check}, {one.when})", f"  rule       {one.threshold}"]
    lines += [f"  see        {_place(evidence)}{evidence.text}" for evidence in one.evidence]
    lines += [f"  cause      {one.cause}", f"  do         {one.advice}"]
    if one.changes:
        tried = " ".join(f"--{name} {value}" for name, value in one.changes.items())
        begin = "the beginning" if one.fork_step is None else f"step {one.fork_step}"
        lines.append(f"  try        {tried} (from {begin})")
    return lines


def _place(evidence: Evidence) -> str:
    places = [f"{name} {value}" for name, value in (("step", evidence.step), ("response", evidence.sample)) if value is not None]
    return f"{', '.join(places)}: " if places else ""
