"""The texts of the experiments, and what the page shows of two runs. Loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.language import told
from rlhf_studio.lessons.answers import picture_data, slot_text
from rlhf_studio.lessons.faults.experiment import WHICH, Experiment, Which
from rlhf_studio.lessons.faults.pair import Pair
from rlhf_studio.lessons.faults.table import EXPERIMENTS
from rlhf_studio.lessons.faults.wording import NOTICED
from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.kit.text import LessonText, read_text
from rlhf_studio.runs.reader import RunReader

FOLDER = Path(__file__).parent / "texts"
WORDS = "words"
"""The file of the words that all texts have in common."""
NOT_RECORDED = "(not recorded)"
MOST_EVENTS = 100
SCENES = ("change", "ask", "curves", "path", "why")
"""The parts of each text, in this order: what is changed, the question, what both runs did, the way to the bug, the explanation."""
Json = dict[str, Any]


class NoExperiment(LookupError):
    """There is no experiment of this name."""


def experiment_of(name: str) -> Experiment:
    """Raises :class:`NoExperiment`."""
    experiment = next((candidate for candidate in EXPERIMENTS if candidate.name == name), None)
    if experiment is None:
        raise NoExperiment(f"There is no experiment {name[:60]!r}.")
    return experiment


@cache
def text_of(name: str, language: str = "en") -> LessonText:
    """An experiment's text; in English where there is none in this language. Raises :class:`NoExperiment`."""
    experiment_of(name)
    text = _read(name, language)
    text.words = {**_read(WORDS, language).words, **text.words}
    return text


def _read(name: str, language: str) -> LessonText:
    path = FOLDER / f"{name}.{language}.md"
    return read_text((path if path.is_file() else FOLDER / f"{name}.en.md").read_text(encoding="utf-8"))


def entries(language: str = "en") -> list[Json]:
    """All experiments, in order: name and title."""
    return [{"name": experiment.name, "title": text_of(experiment.name, language).title} for experiment in EXPERIMENTS]


def content_of(pair: Pair, language: str = "en") -> Json:
    """What a text shows of two runs: ``slots`` by key, ``pictures`` by name, for all its parts together."""
    numbers, text = pair.numbers(), text_of(pair.experiment.name, language)
    slots = {key: _slot(numbers, name, form) for scene in text.scenes for key, (name, form) in scene.slots.items()}
    names = [block["name"] for scene in text.scenes for block in scene.blocks if block["kind"] == "picture"]
    return {"slots": slots, "pictures": {name: picture_data(pair.picture(name)) for name in names}}


def _slot(numbers: Numbers, name: str, form: str) -> str:
    """A run that ended early has not recorded everything, and the text says so."""
    return slot_text(numbers, name, form) if name in numbers else NOT_RECORDED


def report_of(reader: RunReader) -> Json:
    """What the program itself says of a run: what the engine ``noticed``, and the findings of the doctor (``found``)."""
    events = [event.text for event in reader.newest_events(MOST_EVENTS) if event.level == "warning" and event.kind == "health"]
    noticed = [told(text.removeprefix(NOTICED).strip()) for text in events]
    findings = [
        {"check": finding.check, "title": finding.title, "level": finding.level, "when": finding.when}
        for finding in diagnose(reader).findings
    ]
    return {"noticed": noticed, "refused": any(text.startswith(NOTICED) for text in events), "found": findings}


def result(experiment: Experiment, readers: Mapping[Which, RunReader], language: str = "en") -> Json:
    """All that the page shows of two runs that have ended. Raises StoreError, and ValueError where a run has no step."""
    pair = Pair(experiment, readers["first"], readers["second"])
    where = pair.difference
    token = None if where is None else {"step": where.step, "sample": where.sample, "token": where.position}
    return {**content_of(pair, language), "token": token, "said": {which: report_of(readers[which]) for which in WHICH}}
