"""Sentences that stand in tables of the program, where no function marks them: units, the settings, and the words of the glossary."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_studio.analysis.doctor.doctor import CHECKS


def tables() -> Iterator[tuple[str, str]]:
    """Each as its file, from ``rlhf_studio/`` on, and its text."""
    for unit in ("token", "tokens", "word", "words", "nats"):
        yield "ui/assets/shared/tokens.js", unit
    for check in CHECKS.values():
        yield from (("analysis/doctor/check.py", text) for text in (check.title, check.rule, check.cause, check.advice))
