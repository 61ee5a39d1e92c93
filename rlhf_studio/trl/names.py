"""What a name of TRL's PPO means and where it is in this program: an option, or a name of the source or of the logs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from rlhf_studio.language import N_, _, language, together
from rlhf_studio.trl.table import SECTIONS, groups, names, options

_SPOKEN_OF = {
    "constructor": N_("Passed to PPOTrainer"),
    "around": N_("In a script for TRL 0.11"),
    "classic": N_("PPOConfig of TRL 0.11"),
}


@dataclass(frozen=True)
class NameAnswer:
    """What is known of one name.

    Attributes:
        name: as TRL's source has it.
        releases: whose options have it; empty for what is no option.
        what: what it is in TRL; empty for an option.
        symbols: dotted names inside our package where the same is done.
        settings: dotted names of our settings, for an option.
        note: how it is here, or why there is no such thing. Where releases differ, each part begins with its release.
        see: ``tour:STATION``, ``lesson:LESSON`` or ``lesson:LESSON/SCENE``; may be empty.
        family: the other names that the same row answers.
    """

    name: str
    releases: tuple[str, ...] = ()
    what: str = ""
    symbols: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    note: str = ""
    see: str = ""
    family: tuple[str, ...] = ()


def answers() -> dict[str, NameAnswer]:
    """The answer for each name of the table, in the language that is spoken now. A name that is an option too is answered by both rows."""
    return _answers(language())


@cache
def _answers(_language: str) -> dict[str, NameAnswer]:
    by_name = _options()
    for row in names():
        for name in row.names:
            family = tuple(other for other in row.names if other != name)
            option = by_name.get(name, NameAnswer(name))
            note = together(_(row.note), option.note)
            by_name[name] = replace(option, what=_(row.what), symbols=row.symbols, note=note, see=row.see, family=family)
    return by_name


def _options() -> dict[str, NameAnswer]:
    rows: dict[str, list[tuple[str, str, tuple[str, ...], str]]] = {}
    for section in SECTIONS:
        for option in options(section.name):
            for name in option.names:
                rows.setdefault(name, []).append(
                    (section.release, _(_SPOKEN_OF.get(section.name, "TRL 1.12")), option.ours, _(option.note))
                )
    for group in groups():
        for name in group.names:
            rows.setdefault(name, []).append(("1.12", "TRL 1.12", (), _(group.sentence)))
    return {name: _of_rows(name, of_name) for name, of_name in rows.items()}


def _of_rows(name: str, rows: list[tuple[str, str, tuple[str, ...], str]]) -> NameAnswer:
    """The settings of all rows of an option, and the notes; where these differ, each says of which release it is true."""
    telling = [row for row in rows if row[2]] or rows
    settings = tuple(dict.fromkeys(setting for _release, _section, ours, _note in telling for setting in ours))
    by_note: dict[str, str] = {}
    for _release, spoken_of, _ours, note in telling:
        if note:
            by_note.setdefault(note, spoken_of)
    alike = len({note for *_, note in telling}) == 1
    said = _("{name}: {sentence}")
    notes = together(*(note if alike else said.format(name=release, sentence=note) for note, release in by_note.items()))
    return NameAnswer(name, tuple(sorted({release for release, *_ in rows})), settings=settings, note=notes)
