"""Lines of installed source code, selected by the name of a function or class and by text in the lines.

Line numbers would soon name other lines; a text that is no longer in the code raises an error. The file is read, not imported, so that
nothing is loaded.
"""

from __future__ import annotations

import ast
import importlib.util
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pygments.lexers import get_lexer_by_name
from pygments.lexers.special import TextLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from pygments.util import ClassNotFound

OURS = "rlhf_studio"
_PARSING = threading.Lock()
_CLASSES = (
    *((Comment, "comment"), (String, "string"), (Keyword, "keyword"), (Operator.Word, "keyword")),
    *((Number, "number"), (Name.Function, "name"), (Name.Class, "name")),
)


class CodeError(ValueError):
    """A symbol or a text that does not stand there, or stands there more than once."""


@dataclass(frozen=True)
class Excerpt:
    """Lines of a function, class or constant.

    Attributes:
        symbol: as it was asked for, such as ``ppo.losses.policy_loss``.
        path: the file, from the package on.
        first: number of the first line in the file today.
        lines: the text, with the lines' common indentation taken away.
    """

    symbol: str
    path: str
    first: int
    lines: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        return {"symbol": self.symbol, "path": self.path, "first": self.first, "lines": coloured("\n".join(self.lines))}


def coloured(source: str, language: str = "python") -> list[list[list[str]]]:
    """Each line as pairs of a class (comment, keyword, string, number, name or none) and a text. An unknown language has no classes."""
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False, ensurenl=False)
    rows: list[list[list[str]]] = [[]]
    for kind, text in lexer.get_tokens(source):
        name = next((name for token, name in _CLASSES if f"{kind}.".startswith(f"{token}.")), "")
        for number, part in enumerate(text.split("\n")):
            if number:
                rows.append([])
            if part:
                rows[-1].append([name, part])
    return rows


def excerpt(symbol: str, begin: str = "", end: str = "", *, package: str = OURS) -> Excerpt:
    """The code of ``symbol``, a dotted name inside ``package``; without its docstring.

    Args:
        begin, end: the lines with these texts are the first and the last. Each text must be in exactly one line. Empty: all lines.

    Raises:
        CodeError: there is no such symbol, or a text stands in no line or in several.
    """
    path, inner = _file_of(package, symbol)
    source = path.read_text(encoding="utf-8")
    lines, node = source.splitlines(), _find(syntax(source), inner, symbol)
    hidden = _docstring_lines(node)
    numbers = [number for number in range(_first_line(node), (node.end_lineno or 0) + 1) if number not in hidden]
    first, last = (_line_with(lines, numbers, text, symbol) if text else None for text in (begin, end))
    numbers = [number for number in numbers if (first or 0) <= number <= (last or len(lines))]
    if not numbers:
        raise CodeError(f"{symbol}: the line with {end!r} comes before the one with {begin!r}")
    code = [lines[number - 1] for number in numbers]
    indent = min((len(line) - len(line.lstrip()) for line in code if line.strip()), default=0)
    where = f"{package}/{path.relative_to(_folder_of(package)).as_posix()}"
    return Excerpt(symbol, where, numbers[0], tuple(line[indent:] for line in code))


def syntax(source: str) -> ast.Module:
    """The syntax tree of Python source. One thread at a time: in Python 3.11, threads that parse together damage each other's trees."""
    with _PARSING:
        return ast.parse(source)


@cache
def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)  # of a package at the top, this imports nothing
    if spec is None or not spec.submodule_search_locations:
        raise CodeError(f"the package {package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def _file_of(package: str, symbol: str) -> tuple[Path, list[str]]:
    """The file of a dotted name, and the rest of the name, which is inside the file."""
    parts, folder = symbol.split("."), _folder_of(package)
    for count in range(len(parts) - 1, 0, -1):
        module = folder.joinpath(*parts[:count])
        for path in (module.with_suffix(".py"), module / "__init__.py"):
            if path.is_file():
                return path, parts[count:]
    raise CodeError(f"{symbol}: there is no such module in {package}")


def _find(tree: ast.AST, names: list[str], symbol: str) -> ast.stmt:
    node: Any = tree
    for name in names:
        node = next((child for child in node.body if name in _names(child)), None)
        if node is None:
            raise CodeError(f"{symbol}: there is no {name} in it")
    statement: ast.stmt = node
    return statement


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _docstring_lines(node: ast.stmt) -> set[int]:
    body = getattr(node, "body", [])
    first = body[0] if body and isinstance(body, list) else None
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)):
        return set()
    return set(range(first.lineno, (first.end_lineno or first.lineno) + 1))


def _line_with(lines: list[str], numbers: list[int], text: str, symbol: str) -> int:
    matches = [number for number in numbers if text in lines[number - 1]]
    if len(matches) != 1:
        raise CodeError(f"{symbol}: {text!r} stands in {len(matches) or 'no'} lines; it must stand in one")
    return matches[0]
