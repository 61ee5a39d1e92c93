"""What the pages send with their questions and events: JSON that nobody has checked, read in the same way everywhere."""

from __future__ import annotations

import json
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.language import _
from rlhf_studio.lessons.shelf import known_languages
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.store import NotPossible

MOST_DIGITS = 15  # of a number; JavaScript does not keep a longer one exactly


class QuestionRefused(Exception):
    """The question cannot be asked: one sentence for the page, and the wrong setting (such as ``temperature``), or an empty text."""

    def __init__(self, message: str, field: str = ""):
        self.field = field
        super().__init__(message)


class Event(gr.EventData):
    """An event that a page's script sent to one of our handlers, and its ``data``. Gradio makes it for a parameter of this type."""

    def __init__(self, target: Any, data: Any) -> None:
        super().__init__(target, data)
        self.data = data


def member(data: Any, key: str) -> Any:
    """A member of what was sent; None when it has none of that name, or is no object at all."""
    return data.get(key) if isinstance(data, dict) else None


def run_id(data: Any) -> str:
    """The run that was named. Raises :class:`StoreError` when none was; the workspace checks the rest."""
    run = member(data, "run")
    if not isinstance(run, str) or not run:
        raise StoreError(_("There is no such run."), "missing")
    return run


def language_of(data: Any) -> str:
    """The language that the page is read in, of those that there are texts in; ``en`` where it is none of them."""
    given = member(data, "language")
    return given if isinstance(given, str) and given in known_languages() else "en"


def text(data: Any, key: str, most: int) -> str:
    """A text of at most ``most`` characters; empty when it was not sent. Raises NotPossible."""
    value = member(data, key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > most:
        raise NotPossible(_("{key} must be a text of at most {most:,} characters.").format(key=key, most=most))
    return value


def number(data: Any, key: str, default: float) -> float:
    """A number, which is finite and not too long to be exact. Raises NotPossible for anything else."""
    value = member(data, key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotPossible(_("{key} must be a number.").format(key=key))
    if not abs(value) < 10**MOST_DIGITS:  # also false for NaN
        raise NotPossible(_("{key} must be a finite number of at most {most_digits} digits.").format(key=key, most_digits=MOST_DIGITS))
    return value


def whole_number(data: Any, key: str, default: int) -> int:
    """A whole number. Raises NotPossible for anything else."""
    value = number(data, key, default)
    if int(value) != value:
        raise NotPossible(_("{key} must be a whole number.").format(key=key))
    return int(value)


def as_json(answer: Any) -> Response:
    """An answer that Gradio does not change on its way, and that nobody keeps; ``bytes`` are JSON already.

    Raises ValueError for a number that is not finite: no browser reads it.
    """
    body = answer if isinstance(answer, bytes) else json.dumps(answer, allow_nan=False).encode("ascii")
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


def only_watches(data: Any) -> bool:
    """Whether the page was opened with ``?view=1``, to be treated as a viewer's; it says so with every question."""
    return member(data, "view") is True
