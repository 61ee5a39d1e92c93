"""The sentences that the pages' scripts mark, also those in calls that stand inside others, which Babel does not read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_COMMENT = re.compile(r"^\s*(?://|/?\*).*$", re.MULTILINE)  # comments of our scripts have their own lines
_CALL = re.compile(r"(?<![\w.$])(t|tx|tn|tp|counted)\(")
_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\'((?:[^\'\\\n]|\\.)*)\'|`((?:[^`\\$]|\\.)*)`')
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_OPENS, _CLOSES = "([{", ")]}"


def of_script(source: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The function that is called, and its first two arguments where they are texts; empty where they are not."""
    source = _COMMENT.sub("", source)
    for call in _CALL.finditer(source):
        first, end = _argument(source, call.end())
        second = _argument(source, end + 1)[0] if source[end : end + 1] == "," else ""
        yield call[1], (first, second)


def _argument(source: str, place: int) -> tuple[str, int]:
    """The argument that begins there, and where it ends: a text, perhaps in several pieces; empty for anything else."""
    text, depth, plain = "", 0, True
    while place < len(source):
        letter = source[place]
        if depth == 0 and letter in f",{_CLOSES}":
            break
        if found := _TEXT.match(source, place):
            text += "" if depth else _unescaped(next(part for part in found.groups() if part is not None))
            place = found.end()
            continue
        plain = plain and (letter.isspace() or letter == "+")
        depth += (letter in _OPENS) - (letter in _CLOSES)
        place += 1
    return text if plain else "", place


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: json.loads(f'"{found[0]}"') if found[1][0] in "unt" else found[1], text)
