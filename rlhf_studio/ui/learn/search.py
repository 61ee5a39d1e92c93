"""The one search of the app, on Learn and in Help: lessons, scenes, their texts and questions, terms, stations, code, documents, settings,
the doctor's checks, and every name of TRL's PPO.

What can be found is gathered here; :mod:`rlhf_studio.ui.learn.search_ranking` says what fits a query best.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import gradio as gr

from rlhf_studio.config.glossary import GLOSSARY
from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.kit.code import excerpt
from rlhf_studio.lessons.kit.text import Block, SceneText
from rlhf_studio.trl.names import NameAnswer, answers
from rlhf_studio.ui import sent
from rlhf_studio.ui.learn.search_help import rows
from rlhf_studio.ui.learn.search_places import OTHER_WORDS, PAGES
from rlhf_studio.ui.learn.search_ranking import Found, Ranking, Text
from rlhf_studio.ui.learn.search_words import GREEK, HAN, IGNORED, plain
from rlhf_studio.ui.roles import Role, callable_by

LONGEST_QUERY, MOST, MOST_NAMES, EXTRACT = 80, 20, 6, 150
FEWEST_LETTERS = 3  # of a query that may be a part of a name of TRL
WEIGHTS = {
    "lesson": 1.3,
    "station": 1.0,
    "scene": 1.2,
    "question": 0.6,
    "term": 0.85,
    "code": 0.5,
    "page": 1.2,
    "document": 1.0,
    "answer": 1.15,
    "setting": 0.9,
    "check": 0.9,
}
"""How much a result of a kind counts beside the others."""
NAMED = ("setting", "check", "term")
"""Kinds whose texts begin or end with a name of the program."""
_LIKE_NAME = re.compile(r"[_/.-]")
_LIKE_CODE = re.compile(r"_|/|[a-z][A-Z]")
Json = dict[str, Any]


@dataclass(frozen=True)
class Findable:
    """One thing that the search can find. ``to`` are the parameters of its address, or empty; ``where`` is the title of its lesson."""

    kind: str
    title: str
    text: str
    to: Json
    where: str = ""
    other: str = ""  # what its formulas name, and the words of OTHER_WORDS


@callable_by(Role.VIEWER)
def learn_search(data: Any, request: gr.Request) -> Json:
    """What fits the ``query``: a list of ``results``, best first. An empty query finds nothing; a long one is cut."""
    query = sent.member(data, "query")
    if not isinstance(query, str):
        return {"results": []}
    return {"results": results_of(query[:LONGEST_QUERY], sent.language_of(data))}


def results_of(query: str, language: str = "en") -> list[Json]:
    """The best :data:`MOST` results as plain data: ``kind``, ``title``, ``where``, ``extract``, ``to``, and ``answer`` for a name of TRL.

    A name of TRL comes first when the query is that name, or when the query looks like code. Names that only contain the query come last.
    """
    words = [word for word in query.strip(" ?.").split() if word.lower() not in IGNORED]
    wanted = words[0] if len(words) == 1 else query  # "What is null_ref_context?" asks for that name
    near = named(wanted)
    first = [name for name in near if name.name.lower() == wanted.strip().lower() or _LIKE_CODE.search(wanted)]
    last = [name for name in near if name not in first]
    best: dict[str, tuple[int, Json]] = {}
    for entry, found in index(language).find(query):
        address = "" if entry.kind == "code" else entry.to  # a symbol is shown once, however many lessons show it
        best.setdefault(f"{entry.kind} {entry.title} {address}", (_as_typed(entry, query), _result(entry, found)))
    ranked = [result for _, result in sorted(best.values(), key=lambda ranked: ranked[0])]
    return [*map(_named, first), *ranked[: MOST - len(near)], *map(_named, last)]


def _as_typed(entry: Findable, query: str) -> int:
    """Which results come first: what has the query as its name; a title that is the query's words, if they are several, with a place and
    without; then a title that begins with them."""
    words = entry.text.split() or [""]
    if entry.kind in NAMED and _LIKE_NAME.search(query) and query.strip() in (words[0], words[-1]):
        return 0
    typed, titled = plain(query).split(), plain(entry.title).split()
    if len(typed) < 2 or titled[: len(typed)] != typed:
        return 3
    return 2 if titled != typed else int(not entry.to)


class Index:
    """All entries of one language, and their ranking."""

    def __init__(self, entries: tuple[Findable, ...]) -> None:
        self.entries = entries
        self._ranking = Ranking([Text(entry.title, entry.where, entry.text, entry.other, _weight(entry)) for entry in entries])

    def find(self, query: str) -> Iterator[tuple[Findable, Found]]:
        """What fits, best first."""
        for found in self._ranking.ranked(query, 3 * MOST):
            yield self.entries[found.number], found


def _weight(entry: Findable) -> float:
    """The weight of an entry among the others; code has the largest weight where the tour explains it."""
    if entry.to.get("show") == "faq":
        return WEIGHTS["answer"]
    if entry.to.get("scene") == "check_yourself":
        return WEIGHTS["question"]
    further = entry.kind == "setting" and "tab" not in entry.to  # of a stage beside PPO
    return WEIGHTS[entry.kind] * (1.6 if entry.kind == "code" and "place" in entry.to else 0.6 if further else 1)


@cache
def index(language: str = "en") -> Index:
    """All that can be found in a language, but for the names of TRL. Made once."""
    return Index(tuple(_all(language)))


def prepare(language: str = "en") -> None:
    """Begin to make the index, because a reader may search soon."""
    threading.Thread(target=index, args=(language,), daemon=True).start()


# --- what can be found -------------------------------------------------------------------------------------------------------


def _all(language: str) -> Iterator[Findable]:
    for name, term in GLOSSARY.items():
        yield Findable("term", term.title, f"{term.meaning} {term.good} {name}", {})
    for where, title, text in PAGES:
        yield Findable("page", title, text, {"tab": where.removesuffix(" tab").lower()}, where)
    for row in rows():
        yield Findable(*row)
    for kind, shelf_name in (("station", shelf.TOUR), ("lesson", shelf.LESSONS)):
        for lesson in shelf.entries(language, shelf_name):
            lesson_text = shelf.text_of(lesson.name, language)
            other = [*_letters(lesson_text.introduction), OTHER_WORDS.get(lesson.name, "")]
            yield Findable(kind, lesson_text.title, _prose(lesson_text.introduction), parameters_of(lesson.name), other=" ".join(other))
            for scene in lesson_text.scenes:
                yield from _of_scene(kind, lesson.name, lesson_text.title, scene)


def _of_scene(kind: str, lesson: str, title: str, scene: SceneText) -> Iterator[Findable]:
    to = parameters_of(lesson, scene.name)
    heading = next((_prose([block]) for block in scene.blocks if block["kind"] == "heading"), title)
    of_lesson = kind == "lesson"
    body = [block for block in scene.blocks if block["kind"] not in ("predict", "heading", "code")]
    other = " ".join([*_letters(scene.blocks), OTHER_WORDS.get(f"{lesson}/{scene.name}", "")])
    yield Findable("scene" if of_lesson else "station", heading if of_lesson else title, _prose(body), to, title, other)
    for block in scene.blocks:
        if block["kind"] == "predict":
            explained = " ".join(_prose(content) for _, content in block["answers"])
            yield Findable("question", _prose(block["question"]), explained, to, title)
        elif block["kind"] == "code":
            lines = " ".join("".join(text for _, text in line) for line in block["lines"])
            yield Findable("code", block["symbol"], f"{block['path']} {lines}", to, title)


def parameters_of(lesson: str, scene: str = "") -> Json:
    """The address's parameters of a lesson and scene, or of a station of the tour."""
    folder, _, name = lesson.rpartition(".")
    if folder == shelf.TOUR:
        return {"place": shelf.TOUR, "show": name}
    return {"lesson": name, **({"scene": scene} if scene else {})}


def _prose(piece: Any) -> str:
    """The plain text of a part of a lesson."""
    if isinstance(piece, str):
        return piece
    if isinstance(piece, list):
        joined = " " if piece and isinstance(piece[0], dict) and _is_block(piece[0]) else ""
        return joined.join(_prose(part) for part in piece)
    if piece.get("kind") == "code" and "text" in piece:
        return str(piece["text"])
    if piece.get("kind") in ("slot", "formula"):
        return "…"
    return " ".join(_prose(piece[key]) for key in ("content", "items", "caption", "label") if key in piece)


def _is_block(piece: Block) -> bool:
    return "items" in piece or "caption" in piece or "label" in piece or piece.get("kind") in ("paragraph", "heading")


def _letters(piece: Any) -> Iterator[str]:
    """What stands in the formulas of a part of a lesson: letters, with Greek ones by their names, and functions."""
    if isinstance(piece, dict) and piece.get("kind") == "formula":
        yield from _leaves(piece["tree"])
    elif isinstance(piece, dict | list | tuple):
        for part in piece.values() if isinstance(piece, dict) else piece:
            yield from _letters(part)


def _leaves(tree: Any) -> Iterator[str]:
    for child in tree[2:]:
        if isinstance(child, str):
            yield GREEK.get(child, child)
        else:
            yield from _leaves(child)


def _result(entry: Findable, found: Found) -> Json:
    """A result for the page. The extract is the part of the passage around the first word of the query."""
    whole, text = " ".join(entry.text.split()), found.passage
    words = [phrase.replace(" ", "") if HAN.match(phrase) else phrase for phrase in found.phrases]
    at = min((position for word in words if (position := text.lower().find(word)) >= 0), default=0)
    first = text.rfind(" ", 0, max(at - EXTRACT // 2, 0)) + 1
    piece = text[first : first + EXTRACT]
    if first + EXTRACT < len(text):
        piece = piece.rsplit(" ", 1)[0]
    extract = ("" if whole.startswith(piece) else "… ") + piece + ("" if whole.endswith(piece) else " …")
    return {"kind": entry.kind, "title": entry.title, "where": entry.where, "extract": extract, "to": entry.to}


# --- names of TRL --------------------------------------------------------------------------------------------------------------


def named(query: str) -> list[NameAnswer]:
    """Names of TRL for a query, whatever its capitals: the equal one first, then those that begin with it, then those that contain it."""
    name_typed = query.strip().lower()
    if not name_typed or " " in name_typed:
        return []
    known = {name: answer for name, answer in answers().items() if name_typed == name.lower() or len(name_typed) >= FEWEST_LETTERS}
    order = sorted((_nearness(name.lower(), name_typed), len(name), name) for name in known)
    return [known[name] for near, _, name in order if near < 3][:MOST_NAMES]


def _nearness(name: str, typed: str) -> int:
    return 0 if name == typed else 1 if name.startswith(typed) else 2 if typed in name else 3


def _named(answer: NameAnswer) -> Json:
    answer_fields = {**asdict(answer), "symbols": [_symbol(symbol) for symbol in answer.symbols], "see": _leads_to(answer.see)}
    return {"kind": "name", "title": answer.name, "where": "", "extract": "", "to": {}, "answer": answer_fields}


@cache
def _symbol(symbol: str) -> Json:
    """A symbol with its file, and the lesson or station that shows it, if one does."""
    to = next((entry.to for entry in index().entries if entry.kind == "code" and entry.title == symbol), {})
    return {"symbol": symbol, "path": excerpt(symbol).path, "to": to}


@cache
def _leads_to(see: str) -> Json | None:
    """Where to read about a name: the title of a lesson or station, and its address."""
    if not see:
        return None
    kind, _, rest = see.partition(":")
    lesson, _, scene = rest.partition("/")
    name = f"{shelf.TOUR}.{lesson}" if kind == "tour" else lesson
    return {"title": shelf.text_of(name).title, "to": parameters_of(name, scene)}
