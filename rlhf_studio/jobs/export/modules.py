"""Our own scripts, which are modules that import each other, as one script for a page that stands alone."""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePosixPath

import rlhf_studio

ASSETS = Path(rlhf_studio.__file__).parent / "ui" / "assets"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.MULTILINE)
_LEFT = re.compile(r"^\s*(?:import|export)\b.*", re.MULTILINE)


def one_script(entry: str) -> str:
    """A script of ``assets/`` and all that it imports, each once and after what it needs; ``modules[entry]`` has what it exports.

    It knows the forms that our scripts use: ``import { names } from "./path.js";``, and ``export`` before a const, function or class.

    Raises ValueError for another form, for modules that import each other in a circle, and for what would end an element of HTML.
    """
    written: dict[str, str] = {}
    _write(entry, written, ())
    script = "const modules = {};\n" + "".join(written.values())
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise ValueError(f"{entry} or what it imports holds </script or <!--, which HTML takes for its own")
    return script


def modules_of(entry: str) -> tuple[str, ...]:
    """The scripts that :func:`one_script` puts into one, as paths from ``assets/``."""
    written: dict[str, str] = {}
    _write(entry, written, ())
    return tuple(written)


def _write(path: str, written: dict[str, str], above: tuple[str, ...]) -> None:
    if path in above:
        raise ValueError(f"these modules import each other: {', '.join(above)}")
    text = (ASSETS / path).read_text(encoding="utf-8")

    def imported(match: re.Match[str]) -> str:
        other = _beside(path, match[2])
        if other not in written:
            _write(other, written, (*above, path))
        return f"const {{{match[1].replace(' as ', ': ')}}} = modules[{json.dumps(other)}];\n"

    body = _EXPORT.sub("", _IMPORT.sub(imported, text))
    if left := _LEFT.search(body):
        raise ValueError(f"{path} has a form that cannot be put into one script: {left[0].strip()[:80]}")
    names = ", ".join(_EXPORT.findall(text))
    written[path] = f"modules[{json.dumps(path)}] = (() => {{\n{body}return {{ {names} }};\n}})();\n"


def _beside(path: str, relative: str) -> str:
    """The path from ``assets/`` of what a script names relative to itself."""
    parts: list[str] = []
    for part in (PurePosixPath(path).parent / relative).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
