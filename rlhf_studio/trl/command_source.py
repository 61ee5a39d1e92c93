"""Arguments from a command line, as it is written in a shell script, a README or a docstring."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.trl.arguments import Arguments, NotLiteral
from rlhf_studio.trl.table import known_names

PROCESSES = ("num_processes", "nproc_per_node")
WORDS = {"true": True, "false": False, "none": None, "null": None}


def read_command(text: str) -> Arguments | None:
    """The options of the one command with TRL's options; None when there is none. Raises :class:`ConfigError` for several."""
    commands = [arguments for line in _logical_lines(text) if (arguments := _read_line(line)) is not None]
    if len(commands) > 1:
        raise ConfigError([Problem("", f"there are {len(commands)} commands with TRL's options; put one into a file of its own")])
    return commands[0] if commands else None


def _logical_lines(text: str) -> list[str]:
    """Lines that hold options, continued ones joined."""
    return [line for line in re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines() if " --" in f" {line}"]


def _read_line(line: str) -> Arguments | None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # an apostrophe in prose
        return None
    script = next((index for index, word in enumerate(words) if word.endswith(".py") and not word.startswith("-")), -1)
    values = _options(words[script + 1 :])
    if not known_names() & set(values):
        return None
    arguments = Arguments(values)
    launcher = _options(words[:script]) if script > 0 else {}
    for name, value in launcher.items():
        if name in PROCESSES and isinstance(value, int):
            arguments.processes = value
        elif name == "config_file":
            arguments.launcher_file = str(value)
    if "config" in values:
        arguments.lines.append(f"config: the file {values.pop('config')} was not read; convert it too")
    return arguments


def _options(words: list[str]) -> dict[str, Any]:
    """``--name value``, ``--name=value``, ``--name a b``, ``--flag`` and ``--no_flag``, by name with underscores."""
    options: dict[str, Any] = {}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not re.match(r"--[A-Za-z]", word):
            continue
        name, equals, value = word[2:].partition("=")
        given = [value] if equals else []
        while not equals and index < len(words) and not re.match(r"--[A-Za-z]|[;&|>]", words[index]):
            given.append(words[index])
            index += 1
        name = name.replace("-", "_")
        if not given and name.startswith("no_") and name[3:] in known_names():
            options[name[3:]] = False
        else:
            options[name] = True if not given else _scalar(given[0]) if len(given) == 1 else [_scalar(text) for text in given]
    return options


def _scalar(text: str) -> Any:
    """A word as the value that it stands for."""
    if "$" in text:
        return NotLiteral(text)
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
