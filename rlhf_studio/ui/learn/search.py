"""Search on the Learn page: lessons, scenes, their texts and questions, terms, stations, code, and every name of TRL's PPO."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import gradio as gr

from rlhf_studio.glossary import GLOSSARY
from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.kit.code import excerpt
from rlhf_studio.lessons.kit.text import Block, SceneText
from rlhf_studio.lessons.trl_names import NameAnswer, answers
from rlhf_studio.ui import sent
from rlhf_studio.ui.learn.search_words import GREEK, PAGES, phrases, stem, wanted_stems, whole_names, words
from rlhf_studio.ui.roles import Role, callable_by

LONGEST_QUERY, MOST, MOST_NAMES, EXTRACT = 80, 20, 6, 150
FEWEST_LETTERS = 3  # of a query that finds names of TRL by a part of them
WEIGHTS = {"lesson": 3.0, "station": 2.5, "scene": 2.0, "question": 2.0, "term": 2.0, "code": 1.2, "page": 2.0}
IN_TITLE, IN_LESSON, IN_TEXT = 4.0, 1.5, 1.0  # what a word counts, by where it stands: the title, the lesson's title, the text
ONLY_BEGUN = 0.6  # how well a word fits that is only the beginning of another
SHORTEST_BEGUN = 2  # letters of a word that may be such a beginning
SHORTEST_STEM = 5  # letters of a known word that a longer, unknown one may begin with
LEAST_SHARE = 0.5  # of the words that must stand in a result
_LIKE_CODE = re.compile(r"_|/|[a-z][A-Z]")
Json = dict[str, Any]


@dataclass(frozen=True)
class Findable:
    """Something that can be found: ``to`` are the address's parameters, or nothing; ``where`` names the lesson that it is in."""

    kind: str
    title: str
    text: str
    to: Json
    where: str = ""
    letters: str = ""  # of its formulas
    stems: Mapping[str, float] = field(default_factory=dict)  # what each of its words counts, by where it stands


@callable_by(Role.VIEWER)
def learn_search(data: Any, request: gr.Request) -> Json:
    """What fits the ``query``: a list of ``results``, best first. No query finds nothing; one that is too long is cut."""
    query = sent.member(data, "query")
    if not isinstance(query, str):
        return {"results": []}
    return {"results": found(query[:LONGEST_QUERY], sent.language_of(data))}


def found(query: str, language: str = "en") -> list[Json]:
    """The best :data:`MOST` results, plain data: ``kind``, ``title``, ``where``, ``extract``, ``to``, and ``answer`` for a name of TRL.

    A name of TRL comes first when it is what was asked for, or when the query looks like code; names that only contain it come last.
    """
    near = named(query)
    first = [name for name in near if name.name.lower() == query.strip().lower() or _LIKE_CODE.search(query)]
    last = [name for name in near if name not in first]
    wanted = wanted_stems(query)
    scored = _scored(wanted, language) if wanted else []
    best: dict[tuple[str, str], Findable] = {}
    for _, entry in sorted(scored, key=lambda pair: -pair[0]):
        best.setdefault(_once(entry), entry)
    others = list(best.values())[: MOST - len(near)]
    return [*(_named(name) for name in first), *(_shown(entry, wanted) for entry in others), *(_named(name) for name in last)]


def prepare(language: str = "en") -> None:
    """Begin to make the index, because a reader may search soon."""
    threading.Thread(target=_places, args=(language,), daemon=True).start()


# --- what can be found -------------------------------------------------------------------------------------------------------


@cache
def index(language: str = "en") -> tuple[Findable, ...]:
    """All that can be found in a language, but for the names of TRL. Made once."""
    return tuple(_indexed(entry) for entry in _all(language))


def _all(language: str) -> Iterator[Findable]:
    for name, term in GLOSSARY.items():
        yield Findable("term", term.title, f"{term.meaning} {term.good} {name}", {})
    for where, title, text in PAGES:
        yield Findable("page", title, text, {}, where)
    for kind, shelf_name in (("station", shelf.TOUR), ("lesson", shelf.LESSONS)):
        for lesson in shelf.entries(language, shelf_name):
            whole = shelf.text_of(lesson.name, language)
            letters = " ".join(_letters(whole.introduction))
            yield Findable(kind, whole.title, _prose(whole.introduction), place_of(lesson.name), letters=letters)
            for scene in whole.scenes:
                yield from _of_scene(kind, lesson.name, whole.title, scene)


def _of_scene(kind: str, lesson: str, title: str, scene: SceneText) -> Iterator[Findable]:
    to = place_of(lesson, scene.name)
    heading = next((_prose([block]) for block in scene.blocks if block["kind"] == "heading"), title)
    of_lesson = kind == "lesson"
    plain = [block for block in scene.blocks if block["kind"] not in ("predict", "heading", "code")]
    letters = " ".join(_letters(scene.blocks))
    yield Findable("scene" if of_lesson else "station", heading if of_lesson else title, _prose(plain), to, title, letters)
    for block in scene.blocks:
        if block["kind"] == "predict":
            explained = " ".join(_prose(content) for _, content in block["answers"])
            yield Findable("question", _prose(block["question"]), explained, to, title)
        elif block["kind"] == "code":
            lines = " ".join("".join(text for _, text in line) for line in block["lines"])
            yield Findable("code", block["symbol"], f"{block['path']} {lines}", to, title)


def place_of(lesson: str, scene: str = "") -> Json:
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
        joined = " " if piece and isinstance(piece[0], dict) and "kind" in piece[0] and _is_block(piece[0]) else ""
        return joined.join(_prose(one) for one in piece)
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


# --- how well it fits ----------------------------------------------------------------------------------------------------------


def _indexed(entry: Findable) -> Findable:
    stems: dict[str, float] = {}
    for weight, text in ((IN_TEXT, f"{entry.text} {entry.letters}"), (IN_LESSON, entry.where), (IN_TITLE, entry.title)):
        stems.update(dict.fromkeys((stem(word) for word in (*words(text), *whole_names(text), *phrases(text))), weight))
    return Findable(entry.kind, entry.title, entry.text, entry.to, entry.where, entry.letters, stems)


@cache
def _places(language: str) -> dict[str, list[int]]:
    """By stem, the numbers of the entries in which it stands."""
    found: dict[str, list[int]] = {}
    for number, entry in enumerate(index(language)):
        for one in entry.stems:
            found.setdefault(one, []).append(number)
    return found


def _scored(wanted: Sequence[Mapping[str, float]], language: str) -> list[tuple[float, Findable]]:
    """The entries in which enough of the words stand, each with its score: the more words, the rarer and the higher up, the better."""
    entries, places = index(language), _places(language)
    rarities, fits = [], []
    for alternatives in wanted:
        known = _with_begun(alternatives, places)
        fit: dict[int, float] = {}
        for word, quality in known.items():
            for number in places[word]:
                fit[number] = max(fit.get(number, 0.0), quality * entries[number].stems[word])
        own = places.get(next(iter(alternatives)), ())
        rarities.append(math.log(1 + len(entries) / (1 + len(own or fit))))
        fits.append(fit)
    scored = []
    for number in set().union(*fits):
        there = [place for place, fit in enumerate(fits) if number in fit]
        if len(there) < LEAST_SHARE * len(wanted):
            continue
        share = sum(rarities[place] for place in there) / sum(rarities)
        entry = entries[number]
        score = sum(rarities[place] * fits[place][number] for place in there) * share**2
        length = 1 + entry.title.count(" ") / 20 + (len(entry.stems) / 400 if entry.kind != "code" else 0.0)
        scored.append((score * WEIGHTS[entry.kind] / length, entry))
    return scored


def _with_begun(alternatives: Mapping[str, float], places: Mapping[str, Any]) -> dict[str, float]:
    """The stems that there are, and those that begin with the word itself."""
    found = {word: quality for word, quality in alternatives.items() if word in places}
    begun = next(iter(alternatives))
    if len(begun) >= SHORTEST_BEGUN:
        for word in places:
            if word.startswith(begun):
                found.setdefault(word, ONLY_BEGUN)
    if not found:  # half a word, such as "normalis" or "whiteni"
        found = {word: ONLY_BEGUN for word in places if len(word) >= SHORTEST_STEM and begun.startswith(word)}
    return found


def _once(entry: Findable) -> tuple[str, str]:
    """What is shown once: a symbol of the code however many lessons show it, anything else by its place."""
    return (entry.kind, entry.title if entry.kind == "code" else f"{entry.title} {entry.to}")


def _shown(entry: Findable, wanted: Sequence[Mapping[str, float]]) -> Json:
    """A result; the extract is the piece of the text around the first word that was asked for."""
    text = " ".join(entry.text.split())
    own = [next(iter(alternatives)) for alternatives in wanted]
    at = min((place for word in own if (place := text.lower().find(word)) >= 0), default=0)
    first = max(text.rfind(" ", 0, max(at - EXTRACT // 2, 0)) + 1, 0) if at > EXTRACT // 2 else 0
    piece = text[first : first + EXTRACT]
    whole = first + EXTRACT >= len(text)
    extract = ("… " if first else "") + (piece if whole else piece.rsplit(" ", 1)[0] + " …")
    return {"kind": entry.kind, "title": entry.title, "where": entry.where, "extract": extract, "to": entry.to}


# --- names of TRL --------------------------------------------------------------------------------------------------------------


def named(query: str) -> list[NameAnswer]:
    """The name that was asked for, whatever its capitals; then names that begin so, then those that contain it."""
    asked = query.strip().lower()
    if not asked or " " in asked:
        return []
    known = {name: answer for name, answer in answers().items() if asked == name.lower() or len(asked) >= FEWEST_LETTERS}
    order = sorted((_nearness(name.lower(), asked), len(name), name) for name in known)
    return [known[name] for near, _, name in order if near < 3][:MOST_NAMES]


def _nearness(name: str, asked: str) -> int:
    return 0 if name == asked else 1 if name.startswith(asked) else 2 if asked in name else 3


def _named(answer: NameAnswer) -> Json:
    shown = {**asdict(answer), "symbols": [_symbol(symbol) for symbol in answer.symbols], "see": _seen(answer.see)}
    return {"kind": "name", "title": answer.name, "where": "", "extract": "", "to": {}, "answer": shown}


@cache
def _symbol(symbol: str) -> Json:
    """A symbol with its file, and the lesson or station that shows it, if one does."""
    to = next((entry.to for entry in index() if entry.kind == "code" and entry.title == symbol), {})
    return {"symbol": symbol, "path": excerpt(symbol).path, "to": to}


@cache
def _seen(see: str) -> Json | None:
    """Where an answer leads: the title of a lesson or a station, and its address."""
    if not see:
        return None
    kind, _, rest = see.partition(":")
    lesson, _, scene = rest.partition("/")
    name = f"{shelf.TOUR}.{lesson}" if kind == "tour" else lesson
    return {"title": shelf.text_of(name).title, "to": place_of(name, scene)}
