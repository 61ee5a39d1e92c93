"""A conversion under way: TRL's arguments and their defaults go in, our settings and lines for a person come out."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.wording import shortened
from rlhf_studio.language import _
from rlhf_studio.trl.arguments import Arguments, NotLiteral
from rlhf_studio.trl.table import SECTIONS, answer, groups, options


@dataclass
class Draft:
    """The arguments of a file, and what has been made of them so far.

    Attributes:
        settings: our settings, by dotted name, in the order in which they were put.
        empty_settings: our settings that a person must fill in, with their empty values.
        decide, differs, left_out: lines for a person.
    """

    arguments: Arguments
    release: str
    processes: int
    settings: dict[str, Any] = field(default_factory=dict)
    empty_settings: dict[str, Any] = field(default_factory=dict)
    components: list[dict[str, Any]] = field(default_factory=list)
    decide: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name, value in self.arguments.values.items():
            if isinstance(value, str) and re.fullmatch(r"<[A-Z_]+_TOKEN>", value):  # what to_dict of TRL's classes writes for every token
                self.arguments.values[name] = NotLiteral(value)
        self._defaults: dict[str, Any] = {}
        self._notes: dict[str, str] = {}
        for section in SECTIONS:
            for option in options(section.name) if self.release in section.searched_for else ():
                for name in option.names:  # of two rows with this name the first one counts
                    self._defaults.setdefault(name, option.default)
                    self._notes.setdefault(name, option.note)
        if self.release == "1.12":
            for group in groups():
                self._notes |= {name: group.sentence for name in group.names if name not in self._notes}

    def given(self, name: str) -> bool:
        """Whether the file sets this argument to something that can be read."""
        return name in self.arguments.values and not isinstance(self.arguments.values[name], NotLiteral)

    def value(self, name: str) -> Any:
        """The argument as given, else TRL's default."""
        self._used.add(name)
        value = self.arguments.values.get(name, self._defaults.get(name))
        return self._defaults.get(name) if isinstance(value, NotLiteral) else value

    def number(self, name: str) -> float | None:
        """The argument as a number; None when it is null. Raises :class:`ConfigError` when it is something else."""
        value = self.value(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)):
            raise wrong(name, "a number", value)
        return value

    def count(self, name: str, least: int = 1) -> int:
        """The argument as a whole number. Raises :class:`ConfigError` when it is something else, or below ``least``."""
        value = self.number(name)
        if value is None or value != int(value) or value < least:
            raise wrong(name, f"a whole number of at least {least}", value)
        return int(value)

    def switch(self, name: str) -> bool:
        """The argument as true or false; null is false. Raises :class:`ConfigError` when it is something else."""
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise wrong(name, "true or false", value)
        return bool(value)

    def text(self, name: str) -> str:
        """The argument as text; null is empty. Raises :class:`ConfigError` when it is something else."""
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise wrong(name, "text", value)
        return value or ""

    def note(self, name: str) -> str:
        """What the table says about an argument, without the full stop; empty for one that is not in it."""
        return _(self._notes.get(name, "")).rstrip(".。")

    def put(self, setting: str, value: Any) -> None:
        """Give one of our settings a value."""
        self.settings[setting] = value

    def differ(self, text: str) -> None:
        """Say of one of TRL's options what is otherwise here, in English, as a program's run keeps it."""
        self.differs.append(text)

    def ask(self, setting: str, empty: Any, question: str) -> None:
        """Leave one of our settings to a person: an empty value is written, with which no run can start."""
        self.empty_settings[setting] = empty
        self.decide.append(_("{name}: {sentence}").format(name=setting, sentence=question))

    def same(self, *pairs: tuple[str, str]) -> None:
        """(TRL's name, ours): numbers that carry over as they are."""
        for theirs, ours in pairs:
            self.put(ours, self.number(theirs))

    def steps_of(self, name: str, steps: int | None) -> int | None:
        """A number of batches; TRL takes a share of all batches when it is below 1. None when the number of all is not known."""
        value = self.number(name) or 0
        if value >= 1 or value == 0:
            return int(value)
        if steps is None:
            self.decide.append(_("{name}: {value:g} of all batches, whose number is not known").format(name=name, value=value))
            return None
        return max(1, math.ceil(value * steps))

    def finish(self) -> None:
        """Add a line for every argument that was not used, and for every value that is not a literal."""
        for name, value in self.arguments.values.items():
            if isinstance(value, NotLiteral) and name in self._used:
                self.decide.append(_("{name}: {text!r} is not a literal; write its value").format(name=name, text=value.text))
            elif name not in self._used:
                unknown = _("TRL {release} has no such option for PPO").format(release=self.release)
                self.left_out.append(_("{name}: {sentence}").format(name=name, sentence=_(self._notes.get(name, unknown)) or answer(name)))

    def nested(self, *, with_empty: bool) -> dict[str, Any]:
        """Our settings as sections; ``with_empty``: also the empty ones, which a person must fill in."""
        data: dict[str, Any] = {}
        if self.components:
            self.put("reward.components", self.components)
        for name, value in {**self.settings, **(self.empty_settings if with_empty else {})}.items():
            *sections, last = name.split(".")
            target = data
            for section in sections:
                target = target.setdefault(section, {})
            target[last] = value
        order = ("name", "model", "lora", "critic", "data", "reward", "ppo", "generation", "engine")
        return {section: data[section] for section in order if section in data}


def wrong(name: str, expected: str, value: Any) -> ConfigError:
    """The error for an argument that is not what TRL takes."""
    return ConfigError([Problem(name, f"TRL's option should be {expected}, not {shortened(value)}")])
