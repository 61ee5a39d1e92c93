"""What the doctor and "what did it learn" say of a run, everywhere where they say it, and whether that is right."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.trials.cases import HEALTHY, Trial
from rlhf_studio.analysis.doctor import Doctor
from rlhf_studio.analysis.learned import what_was_learned
from rlhf_studio.analysis.records import Diagnosis, Learned
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.rows import tenth
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.insights import Insights, Place

WAIT = 120  # seconds for an analysis of Live
CLEAR_GAIN = 0.1  # of the gold score, which lies between -1 and 1


@dataclass(frozen=True)
class Judgement:
    """One run, judged.

    Attributes:
        said: the verdict's kind after each step, (S,); the last one is of the ended run.
        graver: (level, check, step) of every warning and alarm, at each level when it was first said.
        wrong: what is not as it should be; empty when all is right.
    """

    diagnosis: Diagnosis
    learned: Learned
    said: list[str]
    graver: list[tuple[str, str, int]]
    figures: str
    wrong: list[str] = field(default_factory=list)

    @property
    def first_said(self) -> int | None:
        """The step after which somebody who watched first read the verdict that holds in the end ("improving" for "improved")."""
        kind = self.said[-1].replace("improved", "improving")
        return next((step for step, one in enumerate(self.said, 1) if one.replace("improved", "improving") == kind), None)


def judge(folder: Path, trial: Trial, everywhere: bool = True) -> Judgement:
    """Judge a run that has ended. ``everywhere``: also compare what the commands, the report and Live say, which takes some seconds."""
    reader, doctor = RunReader(folder), Doctor(RunReader(folder))
    last, steps = doctor.diagnose(), reader.status().step
    each = [doctor.diagnose(step) for step in range(1, steps)] + [last]
    graver: dict[tuple[str, str], int] = {}
    for step, one in enumerate(each, 1):
        for finding in one.findings:
            if finding.level != "note":
                graver.setdefault((finding.level, finding.check), step)
    judgement = Judgement(
        last,
        what_was_learned(reader),
        [one.verdict.kind for one in each],
        [(level, check, step) for (level, check), step in sorted(graver.items(), key=lambda item: item[1])],
        _figures(reader),
    )
    judgement.wrong.extend(_wrong(judgement, trial, _gold_gain(reader)))
    if everywhere:
        judgement.wrong.extend(_elsewhere(folder, last))
    return judgement


def _figures(reader: RunReader) -> str:
    """Score, gold and KL: the first step and the mean of the last tenth."""
    told = []
    for name, metric in (
        ("score", "objective/scores"),
        ("gold", "gold/score"),
        ("KL", "objective/kl"),
        ("length", "tokens/response_length"),
    ):
        if ends := _first_and_last(reader, metric):
            told.append(f"{name} {ends[0]:.2f} → {ends[1]:.2f}")
    return ", ".join(told)


def _first_and_last(reader: RunReader, metric: str) -> tuple[float, float] | None:
    """A metric at the first step, and its mean over the last tenth."""
    values = [value for _, row in reader.metrics_since(0, limit=100_000) if (value := row.get(metric)) is not None]
    newest = values[-tenth(len(values)) :]
    return (values[0], sum(newest) / len(newest)) if values else None


def _gold_gain(reader: RunReader) -> float:
    ends = _first_and_last(reader, "gold/score")
    return ends[1] - ends[0] if ends else 0.0


def _wrong(found: Judgement, trial: Trial, gold_gain: float) -> Iterator[str]:
    verdict, learned = found.diagnosis.verdict, found.learned
    right = (*trial.verdicts, *HEALTHY) if trial.by_gold and gold_gain > CLEAR_GAIN else trial.verdicts
    if right and verdict.kind not in right:
        yield f"the verdict should be {' or '.join(right)}"
    if trial.quiet and found.graver:
        yield "a healthy run was warned of"
    told = {one.check for one in found.diagnosis.findings}
    yield from (f"{check} was not found" for check in trial.checks if check not in told)
    if trial.phrase and not any(trial.phrase in phrase.text.lower() and phrase.z > 0 for phrase in learned.phrases):
        yield f"“{trial.phrase}” is not among what it learned"
    if trial.noted and not any(trial.phrase in note.lower() for note in verdict.notes):
        yield f"no note names “{trial.phrase}”"
    if trial.longer and not any(trait.name == "length" and trait.changed and trait.after > trait.before for trait in learned.traits):
        yield "longer responses are not among what it learned"
    if trial.silent and (learned.phrases or any(trait.changed for trait in learned.traits)):
        yield "something was claimed to be learned"


def _elsewhere(folder: Path, expected: Diagnosis) -> Iterator[str]:
    """Where another verdict stands than the doctor's."""
    shown, doctor = (_printed([*words, str(folder), "--json"]) for words in (["runs", "show"], ["doctor"]))
    kinds = {"runs show": shown["verdict"], "doctor --json": doctor["verdict"], "Live": _live(folder)["verdict"]}
    for place, verdict in kinds.items():
        if (verdict["kind"], verdict["sentence"]) != (expected.verdict.kind, expected.verdict.sentence):
            yield f"{place} says {verdict['kind']}"
    with tempfile.TemporaryDirectory() as scratch:
        _command(["export", str(folder), "--html", f"{scratch}/report.html"])
        page = html.unescape(Path(scratch, "report.html").read_text(encoding="utf-8"))
    kind = re.search(r'class="verdict" data-kind="([^"]+)"', page)
    after_kind = expected.verdict.sentence.split(": ", 1)[-1].lower()  # the kind stands in a badge of its own
    if kind is None or kind[1] != expected.verdict.kind or after_kind not in page.lower():
        yield f"the report says {kind and kind[1]}"


def _printed(words: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(_command(words))
    return values


def _command(words: list[str]) -> str:
    return subprocess.run([sys.executable, "-m", "rlhf_studio", *words], check=True, capture_output=True, text=True).stdout


def _live(folder: Path) -> dict[str, Any]:
    """The diagnosis as the Live page asks for it."""
    status = RunReader(folder).status()
    insights = Insights(Workspace(folder.parents[1]))
    try:
        place = Place(status.epoch, status.step, status.state)
        values: dict[str, Any] = json.loads(insights.detail(folder.name, "diagnosis", place).result(timeout=WAIT))
        return values
    finally:
        insights.close()
