"""The options of TRL that a file holds, as values by TRL's names; and the reader of a command's arguments."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.trl.table import known_names

PROCESSES = ("num_processes", "nproc_per_node")
WORDS = {"true": True, "false": False, "none": None, "null": None}


@dataclass(frozen=True)
class NotLiteral:
    """A value that stands for something else, as it is written: a variable of the shell, or a token that TRL hides."""

    text: str


@dataclass
class Arguments:
    """The options of TRL that were found in a file.

    Attributes:
        values: by TRL's name.
        processes: how many the command starts; 0 when it does not say.
    """

    values: dict[str, Any] = field(default_factory=dict)
    processes: int = 0


def arguments_of(text: str) -> Arguments | None:
    """The arguments of one command, ``--name value …``, with or without the command before them; None where there are none of TRL's.

    Raises :class:`ConfigError` for several commands.
    """
    lines = re.sub(r"\\[ \t]*\r?\n", " ", text).splitlines()
    found = [arguments for line in lines if " --" in f" {line}" and (arguments := _of_line(line)) is not None]
    if len(found) > 1:
        raise ConfigError([Problem("", f"there are {len(found)} commands with TRL's options; put one into a file of its own")])
    return found[0] if found else None


def _of_line(line: str) -> Arguments | None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # an apostrophe in prose
        return None
    program = next((index for index, word in enumerate(words) if word.endswith(".py") and not word.startswith("-")), -1)
    values = _options(words[program + 1 :])
    launcher = _options(words[:program]) if program > 0 else {}
    processes = next((launcher[name] for name in PROCESSES if isinstance(launcher.get(name), int)), 0)
    return Arguments(values, processes) if known_names() & set(values) else None


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
