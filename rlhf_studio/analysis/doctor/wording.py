"""How the doctor's sentences are put together, in every language."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.analysis.records import Level
from rlhf_studio.language import ENGLISH, _, language, pgettext


def level_word(level: Level) -> str:
    """The name of a level of findings."""
    return {"note": _("note"), "warning": _("warning"), "alarm": _("alarm")}[level]


def joined(names: Sequence[str]) -> str:
    """``a, b and c``, of names of things; one stays alone."""
    return _("{list} and {last}").format(list=_(", ").join(names[:-1]), last=names[-1]) if len(names) > 1 else names[0]


def joined_clauses(clauses: Sequence[str]) -> str:
    """The same of parts of a sentence that have a verb."""
    if len(clauses) == 1:
        return clauses[0]
    return pgettext("clauses", "{list} and {last}").format(list=pgettext("clauses", ", ").join(clauses[:-1]), last=clauses[-1])


def lowered(title: str) -> str:
    """A title for the middle of a sentence."""
    return title[0].lower() + title[1:] if language() == ENGLISH else title


def sentence_case(clause: str) -> str:
    """A part of a sentence as one of its own: a capital letter first, and none after it."""
    return clause.capitalize() if language() == ENGLISH else clause


def as_sentence(title: str) -> str:
    """A title with a full stop."""
    return _("{sentence}.").format(sentence=title)
