"""Which lessons there are, and their texts. No lesson's module is imported here, so the app needs no torch to show them.

There are two shelves: the lessons (``clip``), and the stations of the tour through the code (``tour.rewards``), which have the same form.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from rlhf_studio.lessons import pages, tour
from rlhf_studio.lessons.kit.text import LessonText, read_text

LESSONS, TOUR = "", "tour"
PREPARED = Path(__file__).parent / "prepared"
YES_AND_NO = {"en": {"yes": "yes", "no": "no"}, "zh": {"yes": "是", "no": "否"}}
"""What is shown for true and false, and on the answers ``yes`` and ``no``, where a text has no words of its own for them."""
_SHELVES = {LESSONS: pages, TOUR: tour}
_NUMBER = re.compile(r"^NUMBER = (\d+)", re.MULTILINE)
_ANY_RUN = re.compile(r"^ANY_RUN = True$", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


class NoLesson(LookupError):
    """There is no lesson of this name, or it has no text in this language."""


@dataclass(frozen=True)
class Entry:
    """A lesson in the list: its module's name, its number, its title, and whether it can look at any run (``ANY_RUN = True``)."""

    name: str
    number: int
    title: str
    any_run: bool


@cache
def entries(language: str = "en", shelf: str = LESSONS) -> tuple[Entry, ...]:
    """All lessons, or all stations of the tour, in order."""
    rows = []
    for name in _names(shelf):
        module = file_of(name, "py").read_text(encoding="utf-8")
        number = _NUMBER.search(module)
        if number is None:
            continue  # it has no text: what several stations share
        title = _TITLE.search(_source(name, language))  # the whole text is read when it is opened
        rows.append(Entry(name, int(number[1]), title[1].strip() if title else "", bool(_ANY_RUN.search(module))))
    return tuple(sorted(rows, key=lambda entry: entry.number))


@cache
def known_languages() -> frozenset[str]:
    """The languages in which there is a text of any lesson."""
    folders = [Path(str(package.__file__)).parent for package in _SHELVES.values()]
    return frozenset(path.name.split(".")[1] for folder in folders for path in folder.glob("*.*.md"))


def languages(name: str) -> tuple[str, ...]:
    """In which languages there is a text, English first."""
    text = file_of(name, "md")
    available = sorted(path.name.split(".")[1] for path in text.parent.glob(f"{text.stem}.*.md"))
    return tuple(sorted(available, key=lambda language: language != "en"))


@cache
def text_of(name: str, language: str = "en") -> LessonText:
    """The text of a lesson or a station; in English where there is none in this language. Raises :class:`NoLesson`."""
    if name not in _names(name.rpartition(".")[0]) or not languages(name):
        raise NoLesson(f"There is no lesson {name!r}.")
    text = read_text(_source(name, language))
    text.words = {**YES_AND_NO.get(_chosen(name, language), {}), **text.words}
    return text


def prepared(name: str, language: str = "en") -> dict[str, Any] | None:
    """What a lesson shows at its start, computed in advance: the page shows it until the app has computed the numbers itself.

    As :func:`rlhf_studio.lessons.answers.beginning`, with the numbers of all scenes but the slow ones. None for a station of the tour.
    ``python -m tools.prepared_numbers`` writes the files; a test compares them with what is computed.
    """
    path = PREPARED / f"{name}.{_chosen(name, language)}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def module_of(name: str) -> ModuleType:
    """A lesson's module, which loads torch. Raises :class:`NoLesson`."""
    text_of(name)  # only names that are known
    shelf, _, module = name.rpartition(".")
    return importlib.import_module(f"{_SHELVES[shelf].__name__}.{module}")


def _names(shelf: str) -> list[str]:
    """The modules of a shelf, by the names that lessons have; none for a shelf that there is not."""
    folders = [str(Path(str(_SHELVES[shelf].__file__)).parent)] if shelf in _SHELVES else []
    return [f"{shelf}.{module.name}" if shelf else module.name for module in pkgutil.iter_modules(folders)]


def _source(name: str, language: str) -> str:
    return file_of(name, f"{_chosen(name, language)}.md").read_text(encoding="utf-8")


def _chosen(name: str, language: str) -> str:
    return language if language in languages(name) else "en"


def file_of(name: str, ending: str) -> Path:
    """A file of a lesson, beside its module."""
    shelf, _, module = name.rpartition(".")
    return Path(str(_SHELVES[shelf].__file__)).parent / f"{module}.{ending}"
