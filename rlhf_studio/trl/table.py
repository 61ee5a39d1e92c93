"""TRL's options and where each is found here: table.yaml as records. :func:`name_trl_in_errors` lets errors about settings use them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlhf_studio.config.io import OTHER_PROGRAMS, OtherProgram
from rlhf_studio.language import _

TABLE = Path(__file__).with_name("table.yaml")


@dataclass(frozen=True)
class OptionSection:
    """Options of TRL that stand together: a list in table.yaml, and a table in docs/from-trl.md.

    Attributes:
        name: its key in table.yaml.
        title: its heading on the page.
        release: the release of TRL whose options these are.
        searched_for: the releases for whose files the converter looks options up here.
    """

    name: str
    title: str
    release: str
    searched_for: tuple[str, ...]

    def only_in(self, release: str) -> bool:
        """Whether an argument of this section is a sign of that release."""
        return self.searched_for == (release,)


SECTIONS = (
    OptionSection("constructor", "What you passed to PPOTrainer", "0.11", ()),
    OptionSection("around", "TRL 0.11: what stood around PPOTrainer", "0.11", ("0.11",)),
    OptionSection("classic", "TRL 0.11: PPOConfig with your own loop around `step`", "0.11", ("0.11",)),
    OptionSection("experimental", "TRL 1.12: trl.experimental.ppo.PPOConfig", "1.12", ("1.12",)),
    OptionSection("arguments", "TRL 1.12: inherited training arguments that matter for PPO", "1.12", ("1.12",)),
    OptionSection("script", "TRL 1.12: ScriptArguments of its PPO scripts", "1.12", ("0.11", "1.12")),
    OptionSection("model", "TRL 1.12: ModelConfig of its PPO scripts", "1.12", ("0.11", "1.12")),
    OptionSection("older", "Names of releases in between", "0.12", ("0.11", "1.12")),
    OptionSection("grpo", "TRL 1.16: GRPOConfig and RLOOConfig", "1.16", ()),
)
"""All sections, in the order of the page. Where two have an option of the same name, the converter takes the first."""


@dataclass(frozen=True)
class Option:
    """One option of TRL.

    Attributes:
        name: as TRL spells it; several spellings are separated by " / ".
        default: TRL's default, None where TRL has none.
        ours: dotted names of our settings; empty when there is no counterpart, and then ``note`` says why.
        note: one sentence on how the value carries over.
    """

    name: str
    default: Any
    ours: tuple[str, ...]
    note: str

    @property
    def names(self) -> list[str]:
        """Each spelling by itself."""
        return self.name.split(" / ")


@dataclass(frozen=True)
class Name:
    """A row about names of TRL's source or logs: what they mean in TRL, our symbols for it, how it works here, and where to read more."""

    names: tuple[str, ...]
    what: str
    symbols: tuple[str, ...]
    note: str
    see: str


@dataclass(frozen=True)
class OptionGroup:
    """Options of TRL to which the same sentence applies."""

    sentence: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Otherwise:
    """What is computed otherwise than in TRL: there, here, and in a program (:mod:`.program`) where that is another thing."""

    there: str
    here: str
    program: str


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return table


def options(section: str) -> list[Option]:
    """The rows of a section, by its name in :data:`SECTIONS`."""
    return [Option(name, default, tuple(ours.split()), note) for name, default, ours, note in _table()[section]]


def groups() -> list[OptionGroup]:
    """The inherited options of TRL 1.12 that are answered together."""
    return [OptionGroup(sentence, tuple(names)) for sentence, names in _table()["groups"]]


def names() -> list[Name]:
    """The names of TRL's source and logs."""
    return [Name(tuple(of.split()), what, tuple(symbols.split()), note, see) for of, what, symbols, note, see in _table()["names"]]


def otherwise(form: str) -> list[Otherwise]:
    """What is computed otherwise than in the "classic" trainer (TRL 0.11) or the "later" one (1.12)."""
    return [Otherwise(*row) for row in _table()["otherwise"][form]]


@cache
def _answers() -> dict[str, dict[tuple[str, ...], tuple[str, str]]]:
    """By TRL's name: our settings, each with the release that they answer, and the note."""
    by_name: dict[str, dict[tuple[str, ...], tuple[str, str]]] = {}
    for section in SECTIONS:
        for option in options(section.name):
            for name in option.names:
                by_name.setdefault(name, {}).setdefault(option.ours, (section.release, option.note))
    for group in groups():
        for name in group.names:
            by_name.setdefault(name, {}).setdefault((), ("1.12", group.sentence))
    return by_name


@cache
def known_names() -> frozenset[str]:
    """Every name that TRL's PPO has for something, of any release."""
    return frozenset(_answers())


def answer(name: str) -> str:
    """Where the option ``name`` of TRL is found here, a sentence without a full stop; empty when TRL's PPO has no such option."""
    answers = _answers().get(name)
    if not answers:
        return ""
    ours = {settings: release for settings, (release, _note) in answers.items() if settings}
    if not ours:
        _release, note = next(iter(answers.values()))
        return _("{name} is TRL's name; there is no such setting here ({why})").format(name=name, why=_(note).rstrip(".。"))
    by_release = len({settings[0] for settings in ours}) > 1
    where = [_("{setting} (TRL {release})").format(setting=each[0], release=of) if by_release else each[0] for each, of in ours.items()]
    names = where if by_release else where[:1]
    return _("{name} is TRL's name; here it is {setting}").format(name=name, setting=_(", or ").join(names))


TRL = OtherProgram("TRL", answer, "python -m rlhf_studio from-trl FILE")


def name_trl_in_errors() -> None:
    """From now on an error about an unknown setting says where TRL's setting of that name is found here."""
    if TRL not in OTHER_PROGRAMS:
        OTHER_PROGRAMS.append(TRL)
