"""What a person wrote for TRL, from YAML, JSON, Python, a notebook, or the command line of a script.

Nothing in a file is run: Python is parsed, and only literals and calls of known names are read (python_source.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from rlhf_studio.config.io import ConfigError, Problem, mapping_from_yaml
from rlhf_studio.config.wording import shortened
from rlhf_studio.trl.arguments import Arguments
from rlhf_studio.trl.cells import python_of
from rlhf_studio.trl.command_source import read_command
from rlhf_studio.trl.python_source import read_python
from rlhf_studio.trl.table import known_names

MOST_BYTES = 5_000_000  # a notebook with its pictures

Attempt = Callable[[str], Arguments | None]


def read_arguments(text: str, name: str) -> Arguments:
    """The arguments of TRL's PPO in a file called ``name``. Raises :class:`ConfigError` when there are none."""
    attempts: dict[str, tuple[Attempt, ...]] = {
        ".ipynb": (_read_notebook,),
        ".json": (_read_json,),
        ".py": (read_python, read_command),
        ".yaml": (_read_yaml,),
        ".yml": (_read_yaml,),
    }
    anything = (_read_json, read_python, read_command, _read_yaml_or_prose)
    if len(text) > MOST_BYTES:
        raise _bad(f"{name} is larger than {MOST_BYTES:,} characters")
    for attempt in attempts.get(PurePath(name).suffix.lower(), anything):
        arguments = attempt(text)
        if arguments is not None and (arguments.values or arguments.response_lengths):
            return arguments
    raise _bad(f"{name} holds no arguments of TRL's PPO: no PPOConfig(...), no settings such as learning_rate, and no command with them")


def _bad(message: str) -> ConfigError:
    return ConfigError([Problem("", message)])


def _read_json(text: str) -> Arguments | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _from_mapping(data)


def _read_yaml(text: str) -> Arguments | None:
    return _from_mapping(mapping_from_yaml(text))


def _read_yaml_or_prose(text: str) -> Arguments | None:
    try:
        return _read_yaml(text)
    except ConfigError:
        return None


def _from_mapping(data: Any) -> Arguments | None:
    """Settings side by side, or in sections."""
    if not isinstance(data, dict):
        return None
    values: dict[str, Any] = {}
    for key, value in data.items():
        inside = isinstance(value, dict) and str(key) not in known_names() and known_names() & {str(name) for name in value}
        values |= {str(name): entry for name, entry in value.items()} if inside else {str(key): value}
    return Arguments(values) if known_names() & set(values) else None


def _read_notebook(text: str) -> Arguments | None:
    """The Python of all code cells together; a cell that is no Python is left out, and a line says which. Cells count from 1."""
    try:
        cells = json.loads(text)["cells"]
        sources = {number: "".join(cell["source"]) for number, cell in enumerate(cells, 1) if cell["cell_type"] == "code"}
    except (ValueError, RecursionError, LookupError, TypeError):
        raise _bad("this is not a notebook: it has no cells") from None
    readable = {number: python_of(source) for number, source in sources.items()}
    unreadable = [number for number, python in readable.items() if python is None]
    skipped = [f"cell {number} is no Python and was not read: {_first_line(sources[number])}" for number in unreadable]
    arguments = read_python("\n".join(source for source in readable.values() if source is not None))
    if arguments is None or not (arguments.values or arguments.response_lengths):
        if skipped:
            raise _bad(f"the cells that are Python hold no arguments of TRL's PPO, and {'; '.join(skipped[:3])}")
        return arguments
    arguments.skipped += skipped
    return arguments


def _first_line(source: str) -> str:
    return shortened(next((line.strip() for line in source.splitlines() if line.strip()), ""))
