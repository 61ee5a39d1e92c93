"""What a name of TRL's PPO means and where it is in this program: an option, or a name of the source or of the logs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from rlhf_studio.trl.table import SECTIONS, groups, names, options

_SPOKEN_OF = {"constructor": "Passed to PPOTrainer", "around": "In a script for TRL 0.11", "classic": "PPOConfig of TRL 0.11"}


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


@cache
def answers() -> dict[str, NameAnswer]:
    """The answer for each name of the table. A name that is an option too is answered by both rows."""
    by_name = _options()
    for row in names():
        for name in row.names:
            family = tuple(other for other in row.names if other != name)
            option = by_name.get(name, NameAnswer(name))
            note = " ".join(part for part in (row.note, option.note) if part)
            by_name[name] = replace(option, what=row.what, symbols=row.symbols, note=note, see=row.see, family=family)
    return by_name


def _options() -> dict[str, NameAnswer]:
    rows: dict[str, list[tuple[str, str, tuple[str, ...], str]]] = {}
    for section in SECTIONS:
        for option in options(section.name):
            for name in option.names:
                rows.setdefault(name, []).append((section.release, _SPOKEN_OF.get(section.name, "TRL 1.12"), option.ours, option.note))
    for group in groups():
        for name in group.names:
            rows.setdefault(name, []).append(("1.12", "TRL 1.12", (), group.sentence))
    return {name: _of_rows(name, of_name) for name, of_name in rows.items()}


def _of_rows(name: str, rows: list[tuple[str, str, tuple[str, ...], str]]) -> NameAnswer:
    """The settings of all rows of an option, and the notes; where these differ, each says of which release it is true."""
    telling = [row for row in rows if row[2]] or rows
    settings = tuple(dict.fromkeys(setting for _, _, ours, _ in telling for setting in ours))
    by_note: dict[str, str] = {}
    for _, spoken_of, _, note in telling:
        if note:
            by_note.setdefault(note, spoken_of)
    alike = len({note for *_, note in telling}) == 1
    notes = " ".join(note if alike else f"{release}: {note}" for note, release in by_note.items())
    return NameAnswer(name, tuple(sorted({release for release, *_ in rows})), settings=settings, note=notes)
