"""The doctor speaks the language of whoever reads it: what it says is another text, what it finds is the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhf_studio.analysis.doctor import examine_settings
from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.report import diagnosis_text
from rlhf_studio.analysis.records import Diagnosis, Finding
from rlhf_studio.language import speaking
from tests.analysis.doctor import test_doctor_checks, test_doctor_settings, test_doctor_stages, test_doctor_verdict
from tests.analysis.doctor.made_runs import Made

ENGLISH = re.compile(r"[A-Za-z'’]{2,},? [A-Za-z'’]{2,}")
OTHERS = re.compile(r"“[^”]*”|'[^']*'|`[^`]*`|\b\w+(?:[./]\w+)+|Bradley–Terry")
"""What is not ours or stays as it is: answers, code, settings and metrics, names."""
FALLEN: dict[str, Any] = {"objective/scores": lambda step: -0.3 * step}


def english(text: str) -> str:
    """The first English words in a text; empty without any."""
    found = ENGLISH.search(OTHERS.sub("·", text))
    return "" if found is None else f"{found[0]!r} in {text!r}"


def texts_of(found: Finding) -> list[str]:
    return [found.title, found.when, found.threshold, found.cause, found.advice, *(evidence.text for evidence in found.evidence)]


def texts(said: Diagnosis) -> list[str]:
    verdict = said.verdict
    own = [verdict.sentence, verdict.reason, verdict.in_counts, *verdict.notes, *(part.sentence for part in verdict.not_checked)]
    return own + [text for found in said.findings for text in texts_of(found)]


def runs(folder: Path) -> Iterator[RecordedRun]:
    """Every illness, and what a verdict can be besides."""
    for name, ill in test_doctor_checks.ILL.items():
        yield ill[0].read(folder / name)
    for stage in test_doctor_stages.ILL.values():
        run = stage[0].read()
        yield run
        yield replace(run, state="stopped", total_steps=10 * int(run.steps[-1]))
    verdicts = (Made(gold=True), Made(metrics=test_doctor_verdict.FLAT), Made(metrics=test_doctor_verdict.DESTROYED), Made(metrics=FALLEN))
    for number, made in enumerate((*verdicts, Made(gold=True, metrics=test_doctor_verdict.GAMED))):
        run = made.read(folder / f"verdict{number}")
        yield run
        yield run.up_to(3)
        yield run.up_to(12)
        yield replace(run, state="stopped", total_steps=10 * int(run.steps[-1]))


def found_in(said: Diagnosis) -> tuple[Any, ...]:
    return said.verdict.kind, said.verdict.changes, [(found.check, found.level, found.since, found.changes) for found in said.findings]


def test_a_diagnosis_is_in_chinese_and_finds_the_same(tmp_path: Path) -> None:
    wrong = []
    for run in runs(tmp_path):
        before = diagnosis(run)
        with speaking("zh"):
            said = diagnosis(run)
            wrong += [left for text in (*texts(said), *diagnosis_text(said).splitlines()) if (left := english(text))]
        assert found_in(said) == found_in(before)
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_what_is_risky_in_settings_is_said_in_chinese_and_is_the_same() -> None:
    wrong, configs = [], [config for config, _level in test_doctor_settings.RISKY.values()]
    for config in configs:
        before = examine_settings(config)
        with speaking("zh"):
            said = examine_settings(config)
            wrong += [left for found in said for text in texts_of(found) if (left := english(text))]
        assert [(found.check, found.level, found.changes) for found in said] == [
            (found.check, found.level, found.changes) for found in before
        ]
    assert not wrong, "\n".join(sorted(set(wrong)))
