"""What the app says, in the language of whoever reads it. Imports nothing of ours: every room may import it.

A sentence that people read is written in English where it is made: ``_("No run is called {name}.").format(name=name)``. That text is the
key of its translation, in ``locale/<language>/LC_MESSAGES/rlhf_studio.po``; without one, the sentence stays English. What is written
into a store is data and stays as it is. Sentences of a table that is made at import are marked with :func:`N_`, and translated where they
are shown. ``python -m tools.messages`` gathers the sentences of the program and its scripts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "zh": "中文"}
"""The languages that the app speaks, each by its own name."""
TAGS = {ENGLISH: "en", "zh": "zh-Hans"}
"""What pages say of the language that they are in, for browsers and screen readers (BCP 47)."""
LANG_VARIABLE = "RLHF_STUDIO_LANG"
"""Names the language of the command line's answers."""
LOCALE = Path(__file__).resolve().parent / "locale"
CONTEXT_END = "\4"  # between a context and a sentence, as gettext has it
TOLD = "told"
"""The context of what :func:`told` translates."""
LONGEST_TOLD = 2000  # characters
DEEPEST_TOLD = 4  # sentences inside each other

_SENTENCES = re.compile(r"(?<=\.) ")
_STOPS = {re.compile(r"(?<!\.)\.$"): "。", re.compile("; "): "；", re.compile(": "): "："}
_SETTING = re.compile(r"[a-z0-9_.]+: ")
_BREAK = re.compile("[.;:] ")
_SLOT = re.compile(r"\{(\w+)\}")
_QUOTED = re.compile(r"""(['"])(?:(?!\1).)*(?:\1|\.\.\.)""", re.DOTALL)  # a value that somebody wrote, maybe cut short
_SHORT = re.compile(r"number|allowed|count|field|(\w+_)?step(_number)?")
"""Slots for numbers and names, which hold no end of a sentence."""
_SAID = re.compile(r"(error|failure|message|problem|reason|text|unread|what|why)\d*")
"""Slots for what somebody else said, which may be several sentences. Any other one at the beginning holds none."""
_NAME = re.compile(r"\S*[\d/._-]\S* (?=[a-z])")
_language: ContextVar[str] = ContextVar("language", default=ENGLISH)


class Message(NamedTuple):
    """A translated sentence.

    Attributes:
        key: the English sentence, of a plural the one for a single thing; a context comes before it, see :func:`pgettext`.
        text: its translation.
        places: the scripts that say it.
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


def labelled(label: str, what: object) -> str:
    """``label: what``, with the colon of the language that is spoken now."""
    return f"{label}{_(': ')}{what}"


def listing(things: Iterable[object]) -> str:
    """Things of one kind, one after the other: ``a, b, c``."""
    return _(", ").join(map(str, things))


def clauses(parts: Iterable[str]) -> str:
    """What is said one after the other, without what is empty: ``650 MB, 21 GB free``."""
    return pgettext("clauses", ", ").join(filter(None, parts))


def bracketed(text: object) -> str:
    """An addition in brackets, to be put behind a word."""
    return _(" ({text})").format(text=text)


def N_(sentence: str) -> str:
    """The sentence as it is, marked for the translation that :func:`_` gives where it is shown."""
    return sentence


def S_(sentence: str) -> str:
    """The sentence as it is, an f-string as well, marked for :func:`told`. Errors and events need no mark, see ``tools.message_told``."""
    return sentence


def told(said: object) -> str:
    """What was said in English to nobody in particular, in the language that is spoken now: an error, or what an engine stored of its run.

    Such a line is made in a thread or a process without a reader, or lies in a run folder for readers of all languages. It is found again
    by its fixed words, with anything in the places of its values; a value that is such a sentence is translated as well. What fits no
    sentence of the program, such as an error of a library, stays as it is.
    """
    text, now = str(said), _language.get()
    return text if now == ENGLISH or len(text) > LONGEST_TOLD else _retold(now, text, 0)


@lru_cache(maxsize=4096)
def _retold(name: str, text: str, depth: int) -> str:
    if (core := text.strip()) != text:
        again = _retold(name, core, depth)
        return text if again == core else f"{text[: text.find(core)].strip(' ')}{again}"
    words = _words(name)
    plain = words.get(text) if not depth or " " in text else None  # a single word may be a name
    if known := words.get(f"{TOLD}{CONTEXT_END}{text}") or words.get(f"{TOLD}{CONTEXT_END} {text}") or plain:
        return known
    if depth == DEEPEST_TOLD or _QUOTED.fullmatch(text) or not re.search("[A-Za-z]{3}", text):
        return text
    if (setting := _SETTING.match(text)) and (new := _retold(name, text[setting.end() :], depth + 1)) != text[setting.end() :]:
        return f"{_retold(name, setting[0][:-2], depth + 1)}：{new}"
    for fixed, slots, sentence in _told_sentences(name):
        if (values := _between(fixed, text)) is not None and _may_be(fixed, slots, values):
            inside = dict(zip(slots, (_retold(name, value, depth + 1) for value in values), strict=True))
            return "".join(inside[part] if index % 2 else part for index, part in enumerate(_SLOT.split(sentence)))
    if (new := _parts_retold(name, text, _SENTENCES, "", depth)) != text:
        return new
    place, colon, what = text.partition(": ")  # what is wrong may have colons and semicolons, but the place has none
    if colon and not _BREAK.search(place) and (new := _retold(name, what, depth + 1)) != what:
        return f"{_retold(name, place, depth + 1)}：{new}"
    for end, stop in _STOPS.items():
        if (new := _parts_retold(name, text, end, stop, depth)) != text:
            return new
    lowered = text[:1].lower() + text[1:]
    if lowered != text and (new := _retold(name, lowered, depth + 1)) != lowered:
        return new
    if (model := _NAME.match(text)) and (new := _retold(name, text[model.end() :], depth + 1)) != text[model.end() :]:
        return f"{model[0]}{new}"  # what is said of a file or a model, behind its name
    return text


def _parts_retold(name: str, text: str, end: re.Pattern[str], stop: str, depth: int) -> str:
    """The parts of a text between certain ends, each retold, with ``stop`` between them; the text as it is where none of them is known."""
    parts = end.split(text)
    new = [_retold(name, part, depth + 1) for part in parts] if len(parts) > 1 else parts
    return text if new == parts else stop.join(new)


@cache
def _told_sentences(name: str) -> list[tuple[list[str], list[str], str]]:
    """What :func:`told` finds: fixed parts, the slots between them, and the translation; those with most fixed words first."""
    start = TOLD + CONTEXT_END
    found = [(*_cut(key.removeprefix(start).strip()), text.strip()) for key, text in _words(name).items() if key.startswith(start)]
    return sorted((one for one in found if one[1]), key=lambda one: -sum(map(len, one[0])))


def _cut(sentence: str) -> tuple[list[str], list[str]]:
    parts = _SLOT.split(sentence)
    return parts[::2], parts[1::2]


def _between(fixed: list[str], text: str) -> list[str] | None:
    """What stands between the fixed parts, which are all of the text's other characters; None where the text is another one."""
    first, *middle, last = fixed
    if not (text.startswith(first) and text.endswith(last)) or len(text) < len(first) + len(last):
        return None
    at, end, values = len(first), len(text) - len(last), []
    for part in middle:  # the first place of each is enough: what is behind it may stand further on
        if (place := text.find(part, at, end)) < 0:
            return None
        values.append(text[at:place])
        at = place + len(part)
    return [*values, text[at:end]]


def _may_be(fixed: list[str], slots: list[str], values: list[str]) -> bool:
    """Whether values can stand in a sentence: a full stop ends it once only, and numbers and names have no ends."""
    if fixed[-1].endswith(".") and any(". " in value for value in values):
        return False
    if not fixed[0] and ". " in values[0] and not _SAID.fullmatch(slots[0]):
        return False
    return not any(_SHORT.fullmatch(slot) and _BREAK.search(value) for slot, value in zip(slots, values, strict=True))


def shown(table: Any, names: Collection[str]) -> Any:
    """Plain data, with the texts of the members that are called one of ``names`` in the language that is spoken now."""
    if _language.get() == ENGLISH:
        return table
    if isinstance(table, dict):
        return {key: _said(value) if key in names else shown(value, names) for key, value in table.items()}
    return [shown(value, names) for value in table] if isinstance(table, list | tuple) else table


def _said(value: Any) -> Any:
    return told(value) if isinstance(value, str) else [_said(one) for one in value] if isinstance(value, list | tuple) else value


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


def of_environment(environment: Mapping[str, str]) -> str:
    """The language that an environment asks for: ``RLHF_STUDIO_LANG`` as it is, else that of the system's locale if the app speaks it."""
    locale = next((environment[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environment.get(name)), "")
    of_system = locale.partition("_")[0].partition(".")[0].lower()
    return environment.get(LANG_VARIABLE) or (of_system if of_system in LANGUAGES else ENGLISH)


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
