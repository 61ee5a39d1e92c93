"""What is wrong with the form's settings, as the page shows it: in the order of the form, and in plain words."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from rlhf_studio.config.io import Problem
from rlhf_studio.config.wording import NEEDS_VALUE
from rlhf_studio.language import N_, _, told
from rlhf_studio.ui.form import SECTION_TITLES

_PLAIN = {
    "input should": "should",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
    "string should": "should",
}

_FILES = {
    "data.prompts": N_("the prompts file"),
    "data.eval": N_("the held-out file"),
    "data.source": N_("the file of examples"),
}
_SECTIONS = tuple(SECTION_TITLES)


def for_page(problems: Sequence[Problem], values: Any) -> list[dict[str, str]]:
    """Problems for the page whose form holds ``values``, in the order of the form."""

    def order_of(problem: Problem) -> int:
        section = problem.field.split(".")[0]
        return _SECTIONS.index(section) if section in _SECTIONS else -1

    names = set(_texts_in(values))
    causes = _causes(sorted(problems, key=order_of), values)
    return [_row(problem, names) for problem in causes]


def _row(problem: Problem, names: Container[str]) -> dict[str, str]:
    """The problem as the page gets it. ``lacks`` says that the only thing wrong with the setting is that it is empty."""
    row = {"field": problem.field, "message": told(plain(_named(problem), names))}
    return row | ({"lacks": "value"} if problem.message == NEEDS_VALUE else {})


def _causes(problems: Sequence[Problem], values: Any) -> Iterator[Problem]:
    """Each cause once. When two settings name the same file or model and are wrong in the same way, only the first one is listed."""
    named = set()
    for problem in problems:
        text = values.get(problem.field) if isinstance(values, Mapping) else None
        if isinstance(text, str) and text:
            if (text, problem.message) in named:
                continue
            named.add((text, problem.message))
        yield problem


def _named(problem: Problem) -> str:
    """The message; a file of prompts that does not exist is named as such."""
    start = "there is no file "
    if problem.field in _FILES and problem.message.startswith(start):
        return _("{files} is not there: {message}").format(files=_(_FILES[problem.field]), message=problem.message[len(start) :])
    return problem.message


def _texts_in(values: Any) -> Iterator[str]:
    """All texts among the form's values: names that people wrote, whose case must stay."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping | list):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _texts_in(value)


def plain(message: str, names: Container[str] = ()) -> str:
    """The checker's "input should be greater than or equal to 0" as people say it, beginning with a capital.

    A name keeps its case: the first word stays as it is when it is one of ``names``, or no plain word (gpt2, config.json, a/b).
    """
    for stiff, simple in _PLAIN.items():
        message = message.replace(stiff, simple)
    first = next(iter(message.split()), "")
    return message[:1].upper() + message[1:] if first.isalpha() and first not in names else message
