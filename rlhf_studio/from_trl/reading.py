"""What a person wrote for TRL, as values by TRL's names: from YAML, JSON, Python, a notebook, or the command line of a script.

Nothing in a file is run: Python is parsed, and only literals and calls of known names are read (python_source.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from rlhf_studio.config_io import ConfigError, Problem, mapping_from_yaml
from rlhf_studio.from_trl.table import known_names

MOST_BYTES = 5_000_000  # a notebook with its pictures


@dataclass(frozen=True)
class Unread:
    """A value that is not a literal, as it is written."""

    text: str


@dataclass
class Reading:
    """The arguments found in a file.

    Attributes:
        values: by TRL's name; :class:`Unread` where the value is computed.
        release: "0.11" or "1.12" where the file itself says so, else empty.
        processes: how many the command starts; 0 when it does not say.
        launcher_file: accelerate's own configuration file, which may say it.
        query_lengths, response_lengths: what a LengthSampler was given, its maximum excluded.
        lines: what a person should know about the reading, one line each.
    """

    values: dict[str, Any] = field(default_factory=dict)
    release: str = ""
    processes: int = 0
    launcher_file: str = ""
    query_lengths: tuple[int, int] | None = None
    response_lengths: tuple[int, int] | None = None
    lines: list[str] = field(default_factory=list)


Attempt = Callable[[str], Reading | None]


def read_arguments(text: str, name: str) -> Reading:
    """The arguments of TRL's PPO in a file called ``name``. Raises :class:`ConfigError` when there are none."""
    from rlhf_studio.from_trl.command_source import read_command
    from rlhf_studio.from_trl.python_source import read_python

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
        reading = attempt(text)
        if reading is not None and (reading.values or reading.response_lengths):
            return reading
    raise _bad(f"{name} holds no arguments of TRL's PPO: no PPOConfig(...), no settings such as learning_rate, and no command with them")


def _bad(message: str) -> ConfigError:
    return ConfigError([Problem("", message)])


def _read_json(text: str) -> Reading | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _from_mapping(data)


def _read_yaml(text: str) -> Reading | None:
    return _from_mapping(mapping_from_yaml(text))


def _read_yaml_or_prose(text: str) -> Reading | None:
    try:
        return _read_yaml(text)
    except ConfigError:
        return None


def _from_mapping(data: Any) -> Reading | None:
    """Settings side by side, or in sections."""
    if not isinstance(data, dict):
        return None
    values: dict[str, Any] = {}
    for key, value in data.items():
        inside = isinstance(value, dict) and str(key) not in known_names() and known_names() & {str(name) for name in value}
        values |= {str(name): one for name, one in value.items()} if inside else {str(key): value}
    return Reading(values) if known_names() & set(values) else None


def _read_notebook(text: str) -> Reading | None:
    from rlhf_studio.from_trl.python_source import read_python

    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise _bad("this is not a notebook: it has no cells") from None
    lines = [line for source in sources for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    return read_python("\n".join(lines))
