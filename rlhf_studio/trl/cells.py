"""The Python in a notebook cell. Jupyter also takes magics, shell commands and requests for help there; they are dropped."""

from __future__ import annotations

import ast
import re

PYTHON_CELLS = ("time", "timeit", "capture", "prun", "debug")
"""Magics that are written above a whole cell of Python."""
_CELL = re.compile(r"\s*%%(\w+)[^\n]*\n?")
_LINE = re.compile(r"(?P<indent>\s*)(?:[%!?]|[\w.]+\s*=\s*[%!]|[\w.*]+\?{1,2}\s*(?:#.*)?$)")


def python_of(source: str) -> str | None:
    """The Python in a cell, or in a file that was pasted from cells; each dropped line becomes ``pass``. None when it is not Python."""
    cell = _CELL.match(source)
    if cell is not None:
        if cell[1] not in PYTHON_CELLS:
            return None
        source = source[cell.end() :]
    return next((text for text in (source, _without_magics(source)) if _parses(text)), None)


def _without_magics(source: str) -> str:
    lines: list[str] = []
    goes_on = False
    for line in source.splitlines():
        dropped = None if goes_on else _LINE.match(line)
        indent = dropped["indent"] if dropped else ""
        lines.append("" if goes_on else f"{indent}pass" if dropped else line)
        goes_on = bool(goes_on or dropped) and line.rstrip().endswith("\\")
    return "\n".join(lines) + "\n"


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
