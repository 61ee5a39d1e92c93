"""What the app says, in the language of whoever reads it. Imports nothing of ours: every room may import it.

A sentence that people read is written in English where it is made: ``_("No run is called {name}.").format(name=name)``. That text is the
key of its translation, in ``locale/<language>/LC_MESSAGES/rlhf_studio.po``; without one, the sentence stays English. What is written
into a store is data and stays as it is. Sentences of a table that is made at import are marked with :func:`N_`, and translated where they
are shown. ``python -m tools.messages`` gathers the sentences of the program and its scripts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "zh": "中文"}
"""The languages that the app speaks, each by its own name."""
TAGS = {ENGLISH: "en", "zh": "zh-Hans"}
"""What pages say of the language that they are in, for browsers and screen readers (BCP 47)."""
LOCALE = Path(__file__).resolve().parent / "locale"
CONTEXT_END = "\4"  # between a context and a sentence, as gettext has it

_language: ContextVar[str] = ContextVar("language", default=ENGLISH)


class Message(NamedTuple):
    """A translated sentence.

    Attributes:
        key: the English sentence, of a plural the one for a single thing; a context comes before it, see :func:`pgettext`.
        text: its translation.
        places: the files that say it.
    """

    key: str
    text: str
    places: tuple[str, ...]


def language() -> str:
    """The language that is spoken now: English, but for what is done for somebody who reads another one."""
    return _language.get()


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """A block that says everything in a language, whatever thread or task it is in."""
    token = _language.set(name)
    try:
        yield
    finally:
        _language.reset(token)


def _(sentence: str) -> str:
    """The sentence in the language that is spoken now; an empty one stays empty."""
    return _words(_language.get()).get(sentence, sentence)


def ngettext(one: str, many: str, count: float) -> str:
    """The sentence of one thing, or of several. ``{count}`` in it stays, for ``format``."""
    return _words(_language.get()).get(one) or (one if count == 1 else many)


def pgettext(context: str, sentence: str) -> str:
    """The sentence, where the same English words mean two things: ``context`` says which one is meant."""
    return _words(_language.get()).get(context + CONTEXT_END + sentence, sentence)


def together(*sentences: str) -> str:
    """Sentences one after the other, without the empty ones; Chinese has no space between them."""
    return ("" if _language.get() == "zh" else " ").join(sentence for sentence in sentences if sentence)


def N_(sentence: str) -> str:
    """The sentence as it is, marked for the translation that :func:`_` gives where it is shown."""
    return sentence


def shown(table: Any, names: Collection[str]) -> Any:
    """Plain data, with the texts of the members that are called one of ``names`` in the language that is spoken now."""
    if _language.get() == ENGLISH:
        return table
    if isinstance(table, dict):
        return {key: _said(value) if key in names else shown(value, names) for key, value in table.items()}
    return [shown(value, names) for value in table] if isinstance(table, list | tuple) else table


def _said(value: Any) -> Any:
    return _(value) if isinstance(value, str) else [_said(one) for one in value] if isinstance(value, list | tuple) else value


@cache
def _words(name: str) -> Mapping[str, str]:
    return {} if name == ENGLISH else {message.key: message.text for message in messages(name)}


@cache
def messages(name: str) -> tuple[Message, ...]:
    """All sentences of a language that have a translation."""
    return tuple(read_po(po_file(name).read_text(encoding="utf-8")))


def po_file(name: str) -> Path:
    """Where the sentences of a language are."""
    return LOCALE / name / "LC_MESSAGES" / "rlhf_studio.po"


def read_po(text: str) -> Iterator[Message]:
    """The translated sentences of a .po file as ``tools.messages`` writes it; what is not sure (fuzzy) is left out.

    It is read as it is: a compiled copy beside it would have to be made anew after every change. Only languages with one form of the
    plural are read.
    """
    for entry in text.split("\n\n"):
        parts: dict[str, str] = {}
        keyword, places, sure = "", [], True
        for line in entry.splitlines():
            if line.startswith("#: "):
                places += line[3:].split()
            elif line.startswith("#,"):
                sure = "fuzzy" not in line
            elif line.startswith('"'):
                parts[keyword] += json.loads(line)
            elif line and not line.startswith("#"):
                keyword, first = line.split(" ", 1)
                parts[keyword] = json.loads(first)
        translated = parts.get("msgstr") or parts.get("msgstr[0]")
        if sure and translated and parts.get("msgid"):
            context = f"{parts['msgctxt']}{CONTEXT_END}" if "msgctxt" in parts else ""
            yield Message(context + parts["msgid"], translated, tuple(places))


def preferred(accepted: str) -> str:
    """Of the languages that the app speaks, the one that a browser likes best (Accept-Language, RFC 9110 12.5.4); else English."""
    liked: list[tuple[float, str]] = []
    for offer in accepted[:500].split(","):
        tag, *parameters = (part.strip().lower() for part in offer.split(";"))
        name = tag.partition("-")[0]
        weight = next((value for key, _, value in (part.partition("=") for part in parameters) if key == "q"), "1")
        if name in LANGUAGES and weight.replace(".", "", 1).isdecimal() and float(weight) > 0:
            liked.append((float(weight), name))
    return max(liked, key=lambda one: one[0])[1] if liked else ENGLISH
