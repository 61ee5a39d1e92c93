"""Settings for TRL's PPO, from YAML, JSON, or the arguments of a command. A program is not read: it can be run as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from rlhf_studio.config.io import ConfigError, Problem, mapping_from_yaml
from rlhf_studio.trl.arguments import Arguments, arguments_of
from rlhf_studio.trl.table import known_names

MOST_CHARACTERS = 1_000_000
PROGRAM = re.compile(r"^\s*(import trl\b|from trl\b)|\bPPOConfig\(|\bPPOTrainer\(", re.MULTILINE)
RUN_IT = "is a program: write rlhf_studio.trl for trl in its import lines and run it, here or in a notebook (docs/from-trl.md)"

Attempt = Callable[[str], Arguments | None]


def read_arguments(text: str, name: str) -> Arguments:
    """The options of TRL's PPO in a file called ``name``. Raises :class:`ConfigError` when there are none, and for a program."""
    kind = PurePath(name).suffix.lower()
    if kind in (".py", ".ipynb") or PROGRAM.search(text):
        raise _bad(f"{name} {RUN_IT}")
    if len(text) > MOST_CHARACTERS:
        raise _bad(f"{name} is larger than {MOST_CHARACTERS:,} characters")
    attempts: dict[str, tuple[Attempt, ...]] = {".json": (_from_json,), ".yaml": (_from_yaml,), ".yml": (_from_yaml,)}
    for attempt in attempts.get(kind, (_from_json, arguments_of, _from_yaml_or_prose)):
        arguments = attempt(text)
        if arguments is not None:
            return arguments
    raise _bad(f"{name} holds no settings of TRL's PPO, such as learning_rate, as YAML, JSON or arguments of a command")


def _bad(message: str) -> ConfigError:
    return ConfigError([Problem("", message)])


def _from_json(text: str) -> Arguments | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _from_mapping(data)


def _from_yaml(text: str) -> Arguments | None:
    return _from_mapping(mapping_from_yaml(text))


def _from_yaml_or_prose(text: str) -> Arguments | None:
    try:
        return _from_yaml(text)
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
