"""The documents of ``docs/``: which there are, their texts as trees that a page draws, and the sections that the search finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from rlhf_studio.config.bundled import DOCS
from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.kit.text import Block, read_markdown

FIRST = "faq"
ORDER = (
    *(FIRST, "guide", "models", "data", "rewards", "settings", "planner"),
    *("doctor", "evaluation", "export", "logs"),
    *("road", "reward-models", "feedback"),
    *("teaching", "lessons"),
    *("library", "attach", "api", "from-trl"),
    *("access", "deploy", "many-gpus", "performance", "hacking", "overoptimisation", "gallery"),
    *("architecture", "extending"),
)
"""From what most people need to what few do. A test compares with the folder."""
_NOT_SHOWN = re.compile(r"^(<!--.*?-->|!\[.*?\]\(.*?\))\n", re.MULTILINE)  # comments, and pictures, which the app does not have
_LESSON = re.compile(r"\.\./rlhf_studio/lessons/(pages|tour)/(\w+)\.en\.md(#\w+)?")
_DOCUMENT = re.compile(r"([\w-]*)(?:\.md)?(#[\w-]+)?")
_WEB = re.compile(r"https?://")


class NoDocument(LookupError):
    """There is no document of this name."""


@dataclass(frozen=True)
class Document:
    """One document. ``blocks`` is what follows its title; each heading among them has an ``anchor``, as GitHub makes it."""

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    """What stands under one heading, up to the next one; the beginning of a document has no anchor, and its document's title."""

    document: Document
    anchor: str
    title: str
    blocks: tuple[Block, ...]


@cache
def document(name: str) -> Document:
    """Raises :class:`NoDocument`."""
    if name not in ORDER:
        raise NoDocument(f"There is no document {name[:60]!r}.")
    source = _NOT_SHOWN.sub("", (DOCS / f"{name}.md").read_text(encoding="utf-8"))
    first, *blocks = _linked(read_markdown(source), name)
    known: dict[str, int] = {}
    for block in blocks:
        if block["kind"] == "title":
            block |= {"kind": "heading", "content": [block.pop("text").replace("`", "")], "level": 2}
        if block["kind"] == "heading":
            slug = anchor_of(plain_text(block["content"]))
            number = known[slug] = known.get(slug, -1) + 1
            block["anchor"] = f"{slug}-{number}" if number else slug
    return Document(name, str(first["text"]), tuple(blocks))


def sections(name: str) -> Iterator[Section]:
    """The sections of a document in order."""
    whole, anchor, gathered = document(name), "", list[Block]()
    title = whole.title
    for block in whole.blocks:
        if block["kind"] == "heading":
            yield Section(whole, anchor, title, tuple(gathered))
            anchor, title, gathered = block["anchor"], plain_text(block["content"]), []
        else:
            gathered.append(block)
    yield Section(whole, anchor, title, tuple(gathered))


def anchor_of(heading: str) -> str:
    """The anchor of a heading, by GitHub's rule."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def plain_text(piece: Any) -> str:
    """The text in a part of a document, without its form."""
    if isinstance(piece, str):
        return piece
    if isinstance(piece, list | tuple):
        apart = " " if piece and isinstance(piece[0], dict) and {"items", "lines"} & piece[0].keys() else ""
        return apart.join(plain_text(part) for part in piece)
    if "lines" in piece:
        return "\n".join("".join(text for _, text in line) for line in piece["lines"])
    if "items" in piece:
        return " ".join(plain_text(item) for item in piece["items"])
    return str(piece["text"]) if "text" in piece else plain_text(piece.get("content", ""))


def _linked(pieces: list[Any], name: str) -> list[Any]:
    """The pieces with links that the page can follow; a link to what the app does not show becomes its words."""
    linked: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str):
            linked.append(piece)
            continue
        for key in ("content", "items"):
            if key in piece:
                piece = {**piece, key: _linked(piece[key], name)}
        if piece["kind"] != "link":
            linked.append(piece)
        elif to := _target(str(piece["to"]), name):
            linked.append({**piece, "to": to})
        else:
            linked.extend(piece["content"])
    return linked


def _target(link: str, name: str) -> str:
    """Where a link of the document ``name`` leads, in the form of lessons' links; empty for a file that the app does not show."""
    if _WEB.match(link):
        return link
    if (lesson := _LESSON.fullmatch(link)) is not None:
        shelf_name, of, scene = lesson.groups()
        known = f"{shelf.TOUR}.{of}" if shelf_name == shelf.TOUR else of
        if known not in {entry.name for entry in shelf.entries(shelf=shelf.TOUR if shelf_name == shelf.TOUR else shelf.LESSONS)}:
            return ""
        return f"tour:{of}" if shelf_name == shelf.TOUR else f"lesson:{of}{scene or ''}"
    if (other := _DOCUMENT.fullmatch(link)) is not None and (other[1] or name) in ORDER:
        return f"doc:{other[1] or name}{other[2] or ''}"
    return ""
