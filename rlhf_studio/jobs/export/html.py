"""HTML from Python in which text cannot become markup: whatever is not :class:`Html` is escaped."""

from __future__ import annotations

from html import escape
from typing import Any

from rlhf_studio.jobs.export.text import readable

EMPTY = ("meta", "br", "col")


class Html(str):
    """Text that is markup already. Only this module, constants and :mod:`.svg` make it."""


def text(value: Any, limit: int = 20_000) -> Html:
    """Any text as text."""
    return Html(escape(readable(str(value), limit), quote=True))


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element. ``class_`` gives ``class``, underscores become hyphens; None and False are left out, True gives the name alone."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in EMPTY:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Any) -> Html:
    """Children one after the other; None and False are left out, lists are opened."""
    parts: list[str] = []
    for child in children:
        if child is None or child is False:
            continue
        parts.append(join(*child) if isinstance(child, list | tuple) else child if isinstance(child, Html) else text(child))
    return Html("".join(parts))


def table(head: list[str], rows: list[list[Any]], class_: str = "") -> Html:
    """A table with a head; the first cell of each row names the row."""
    body = [tag("tr", tag("th", row[0], scope="row"), [tag("td", content) for content in row[1:]]) for row in rows]
    top = tag("thead", tag("tr", [tag("th", title, scope="col") for title in head]))
    return tag("div", tag("table", top, tag("tbody", body), class_=class_ or None), class_="scroll")
