"""TRL's options and where each lives here: table.yaml as records. Imports nothing of ours, so that messages about settings may ask it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("table.yaml")
RELEASES = {
    "classic": "0.11", "experimental": "1.12", "arguments": "1.12", "script": "1.12", "model": "1.12", "older": "0.12", "around": "0.11",
    "constructor": "0.11",
}  # fmt: skip
"""The sections of options, and the release that each speaks of."""


@dataclass(frozen=True)
class Option:
    """One option of TRL.

    Attributes:
        name: as TRL spells it.
        default: TRL's default, None where TRL has none.
        ours: dotted names of our settings; empty when there is no counterpart, and then ``note`` says why.
        note: one sentence on how the value carries over.
    """

    name: str
    default: Any
    ours: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Group:
    """Options of TRL that one sentence answers."""

    sentence: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """Something that is done on purpose otherwise than in TRL 1.12; ``test`` puts TRL's way in by hand."""

    name: str
    theirs: str
    ours: str
    why: str
    test: str


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return table


def options(section: str) -> list[Option]:
    """The rows of a section; see :data:`RELEASES`."""
    return [Option(name, default, tuple(ours.split()), note) for name, default, ours, note in _table()[section]]


def groups() -> list[Group]:
    """The inherited options of TRL 1.12 that are answered together."""
    return [Group(sentence, tuple(names)) for sentence, names in _table()["groups"]]


def differences() -> list[Difference]:
    """What is computed otherwise than in TRL 1.12, and why."""
    return [Difference(*row) for row in _table()["differences"]]


def differences_classic() -> list[tuple[str, str]]:
    """What TRL 0.11 computes otherwise, and what happens here."""
    return [tuple(row) for row in _table()["differences_classic"]]


@cache
def _answers() -> dict[str, dict[tuple[str, ...], tuple[str, str]]]:
    """By TRL's name: our settings, each with the release that they answer, and the note."""
    found: dict[str, dict[tuple[str, ...], tuple[str, str]]] = {}
    for section, release in RELEASES.items():
        for option in options(section):
            for name in option.name.split(" / "):
                found.setdefault(name, {}).setdefault(option.ours, (release, option.note))
    for group in groups():
        for name in group.names:
            found.setdefault(name, {}).setdefault((), ("1.12", group.sentence))
    return found


@cache
def known_names() -> frozenset[str]:
    """Every name that TRL's PPO has for something, of any release."""
    return frozenset(_answers())


def answer(name: str) -> str:
    """Where the option ``name`` of TRL lives here, as a sentence without a final stop; empty when TRL's PPO has no such option."""
    answers = _answers().get(name)
    if not answers:
        return ""
    ours = {settings: release for settings, (release, _) in answers.items() if settings}
    if not ours:
        _, note = next(iter(answers.values()))
        return f"{name} is TRL's name; there is no such setting here ({note.rstrip('.')})"
    if len({settings[0] for settings in ours}) == 1:
        return f"{name} is TRL's name; here it is {next(iter(ours))[0]}"
    return f"{name} is TRL's name; here it is " + ", or ".join(f"{settings[0]} (TRL {release})" for settings, release in ours.items())


def names_elsewhere() -> list[list[str]]:
    """The rows of the last table: our setting, and what three other tools call it."""
    rows: list[list[str]] = _table()["names"]
    return rows
