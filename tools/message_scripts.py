"""The sentences of a script: what the calls of a few functions say, also inside each other and inside templates.

Babel's own extractor leaves out what is said inside another call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

Call = tuple[str, list[str | None]]
"""The function's name, and its arguments: a text, or None for what is no text."""
Token = tuple[str, str]
"""A kind (``text``, ``template``, ``name`` or ``sign``), and what it is: of a text, what it says."""

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<name>[A-Za-z_$][\w$]*(?:\??\.[\w$\#]+)*)"""
    r"""|(?P<number>\d[\w.]*)|(?P<space>\s+)|(?P<template>`)|(?P<pattern>/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*)|(?P<sign>.)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
OPEN, CLOSE = "([{", ")]}"


def calls(source: str, functions: Collection[str]) -> Iterator[Call]:
    """Every call of these functions in a script."""
    tokens = list(_tokens(source))
    for place, (kind, token) in enumerate(tokens):
        if kind == "template":
            for inner in _inside(token):
                yield from calls(inner, functions)
        elif kind == "name" and token in functions and tokens[place + 1 : place + 2] == [("sign", "(")]:
            yield token, list(_arguments(tokens, place + 2))


def _tokens(source: str) -> Iterator[Token]:
    place, divides = 0, False  # whether a slash here divides
    while place < len(source):
        match = _TOKEN.match(source, place)
        assert match is not None
        kind, token = str(match.lastgroup), match[0]
        if kind == "pattern" and divides:
            kind, token = "sign", "/"
        place += len(token)
        if kind == "template":
            end = _end_of_template(source, place)
            token, place = source[place:end], end + 1
        if kind in ("text", "template", "name", "sign"):
            yield kind, _ESCAPE.sub(_meant, token[1:-1]) if kind == "text" else token
        if kind not in ("comment", "space"):
            divides = kind in ("name", "number", "text", "template") and token != "return" or token in (")", "]")


def _end_of_template(source: str, place: int) -> int:
    depth = 0
    while depth or source[place] != "`":
        if source[place] == "\\":
            place += 1
        elif source.startswith("${", place):
            depth, place = depth + 1, place + 1
        elif depth and source[place] in "{}":
            depth += 1 if source[place] == "{" else -1
        elif depth and source[place] == "`":
            place = _end_of_template(source, place + 1)
        place += 1
    return place


def _meant(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else {"n": "\n", "t": "\t"}.get(code, code)


def _arguments(tokens: list[Token], place: int) -> Iterator[str | None]:
    depth, said, is_text, some = 0, "", True, False
    for kind, token in tokens[place:]:
        if depth == 0 and kind == "sign" and token in ",)":
            if some:
                yield said if is_text else None
            if token == ")":
                return
            said, is_text, some = "", True, False
            continue
        text = token if kind == "text" else _ESCAPE.sub(_meant, token) if kind == "template" and "${" not in token else None
        is_text = is_text and (text is not None or (kind, token) == ("sign", "+"))
        said, some = said + (text or ""), True
        if kind == "sign":
            depth += (token in OPEN) - (token in CLOSE)


def _inside(template: str) -> Iterator[str]:
    """The expressions of a template."""
    for match in re.finditer(r"\$\{", template):
        depth, end = 1, match.end()
        while depth and end < len(template):
            depth += (template[end] == "{") - (template[end] == "}")
            end += 1
        yield template[match.end() : end - 1]
