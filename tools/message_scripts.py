"""The sentences of a script: what the calls of a few functions say, also inside each other and inside templates."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from babel.messages.jslexer import Token, tokenize, unquote_string

OPEN, CLOSE = "([{", ")]}"
Call = tuple[str, list[str | None]]
"""The function's name, and its arguments: a text, or None for what is no text."""


def calls(source: str, functions: Collection[str]) -> Iterator[Call]:
    """Every call of these functions in a script."""
    tokens = [token for token in tokenize(source, dotted=True, template_string=True) if "comment" not in token.type]
    for place, token in enumerate(tokens):
        if token.type == "template_string":
            for inner in _inside(token.value):
                yield from calls(inner, functions)
        elif token.type == "name" and token.value in functions and place + 1 < len(tokens) and tokens[place + 1].value == "(":
            yield token.value, list(_arguments(tokens, place + 2))


def _arguments(tokens: list[Token], place: int) -> Iterator[str | None]:
    depth, parts, is_text, some = 0, "", True, False
    while place < len(tokens):
        token = tokens[place]
        place += 1
        if depth == 0 and token.value in (",", ")"):
            if some:
                yield parts if is_text else None
            if token.value == ")":
                return
            parts, is_text, some = "", True, False
            continue
        some = True
        if token.type == "operator":
            depth += (token.value in OPEN) - (token.value in CLOSE)
        text = _text(token) if depth == 0 else None
        is_text = is_text and (text is not None or (depth == 0 and token.value == "+"))
        parts += text or ""


def _text(token: Any) -> str | None:
    if token.type == "string":
        return unquote_string(token.value)
    plain = token.type == "template_string" and "${" not in token.value
    return unquote_string(token.value) if plain else None


def _inside(template: str) -> Iterator[str]:
    """The expressions of a template."""
    for match in re.finditer(r"\$\{", template):
        depth, end = 1, match.end()
        while depth and end < len(template):
            depth += (template[end] == "{") - (template[end] == "}")
            end += 1
        yield template[match.end() : end - 1]
