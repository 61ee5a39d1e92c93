"""Which lessons there are, and their texts. No lesson's module is imported here, so the app needs no torch to show them."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from rlhf_studio.lessons import pages
from rlhf_studio.lessons.kit.text import LessonText, read_text

FOLDER = Path(pages.__file__).parent
_NUMBER = re.compile(r"^NUMBER = (\d+)", re.MULTILINE)
_ANY_RUN = re.compile(r"^ANY_RUN = True$", re.MULTILINE)


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
def entries(language: str = "en") -> tuple[Entry, ...]:
    """All lessons, in order."""
    found = []
    for module in pkgutil.iter_modules([str(FOLDER)]):
        source = (FOLDER / f"{module.name}.py").read_text(encoding="utf-8")
        number = _NUMBER.search(source)
        if number is None:
            raise ValueError(f"the lesson {module.name} has no NUMBER")
        found.append(Entry(module.name, int(number[1]), text_of(module.name, language).title, bool(_ANY_RUN.search(source))))
    return tuple(sorted(found, key=lambda entry: entry.number))


def languages(name: str) -> tuple[str, ...]:
    """In which languages there is a text, English first."""
    found = sorted(path.name.split(".")[1] for path in FOLDER.glob(f"{name}.*.md"))
    return tuple(sorted(found, key=lambda language: language != "en"))


@cache
def text_of(name: str, language: str = "en") -> LessonText:
    """A lesson's text; in English where there is none in this language. Raises :class:`NoLesson`."""
    known = {module.name for module in pkgutil.iter_modules([str(FOLDER)])}
    if name not in known:
        raise NoLesson(f"There is no lesson {name!r}.")
    chosen = language if language in languages(name) else "en"
    return read_text((FOLDER / f"{name}.{chosen}.md").read_text(encoding="utf-8"))


def module_of(name: str) -> ModuleType:
    """A lesson's module, which loads torch. Raises :class:`NoLesson`."""
    text_of(name)  # only names that are known
    return importlib.import_module(f"{pages.__name__}.{name}")
