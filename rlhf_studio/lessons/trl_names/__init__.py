"""What every name in the source of TRL's two PPO trainers means, and where it is here.

``identifiers.yaml`` lists the names (``tools/trl_identifiers.py`` says which count). The other files answer them. An option of TRL's
configuration is answered by the table of :mod:`rlhf_studio.from_trl`, and ``options.yaml`` says what it is for.
Nothing here loads torch or TRL.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlhf_studio.from_trl.table import SECTIONS, groups, options

FOLDER = Path(__file__).parent
LIST, OPTIONS = FOLDER / "identifiers.yaml", FOLDER / "options.yaml"
OLD, NEW = "0.11.4", "1.12.0"
INHERITED = "An option that TRL's PPOConfig inherits from TrainingArguments of transformers."
_SPOKEN_OF = {"constructor": "Passed to PPOTrainer", "around": "In a script for TRL 0.11", "classic": "PPOConfig of TRL 0.11"}
_IN_RELEASE = {"around": OLD, "classic": OLD, "experimental": NEW, "arguments": NEW, "script": NEW, "model": NEW}


@dataclass(frozen=True)
class NameAnswer:
    """What is known of one name.

    Attributes:
        name: as TRL's source has it.
        releases: in which it occurs, such as ``0.11.4``.
        kinds: what it is there: class, function, argument, attribute, constant, local, imported, metric; option for one that the
            trainers' source does not name: inherited from transformers, or of TRL's scripts.
        what: what it is and does in TRL.
        symbols: dotted names inside our package where the same is done.
        settings: dotted names of our settings, for an option.
        note: how it is here, in a sentence or two; may be empty. Where an option differs between releases, each note begins with its own.
        not_needed: why there is nothing of the kind here; empty where there is.
        family: the other names that the same entry answers, in its order.
        see: ``tour:STATION``, ``lesson:LESSON`` or ``lesson:LESSON/SCENE``; may be empty.
    """

    name: str
    releases: tuple[str, ...]
    kinds: tuple[str, ...]
    what: str
    symbols: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    note: str = ""
    not_needed: str = ""
    see: str = ""
    family: tuple[str, ...] = ()


@cache
def identifiers() -> dict[str, dict[str, list[str]]]:
    """The names by release and kind, as TRL's source has them."""
    found: dict[str, dict[str, list[str]]] = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return found


@cache
def written_answers() -> tuple[dict[str, Any], ...]:
    """The entries of all files with answers, each for one name or a family of names."""
    files = sorted(path for path in FOLDER.glob("*.yaml") if path not in (LIST, OPTIONS))
    return tuple(entry for path in files for entry in yaml.safe_load(path.read_text(encoding="utf-8")))


@cache
def answers() -> dict[str, NameAnswer]:
    """The answer for each name that has one, and for each option of the table."""
    places: dict[str, list[tuple[str, str]]] = {}
    for release, kinds in identifiers().items():
        for kind, names in kinds.items():
            for name in names:
                places.setdefault(name, []).append((release, kind))

    def answer(name: str, also: tuple[str, ...] = (), **more: Any) -> NameAnswer:
        releases, kinds = (dict.fromkeys(part) for part in zip(*places[name], strict=True))
        return NameAnswer(name, tuple(sorted({*releases, *also})), tuple(kinds), **more)

    found = {name: answer(name, **fields) for name, fields in _options().items() if name in places}
    # options that no source of the trainers spells out: inherited from transformers, or of TRL's scripts
    found |= {
        name: NameAnswer(name, fields.pop("also") or (NEW,), ("option",), **fields)
        for name, fields in _options().items()
        if name not in places
    }
    for entry in written_answers():
        fields = {key: str(entry.get(key, "")) for key in ("what", "note", "not_needed", "see")}
        symbols = tuple(str(entry.get("here", "")).split())
        family, also = tuple(str(entry["names"]).split()), tuple(str(entry.get("also", "")).split())
        for name in family:
            if name in places:
                found[name] = answer(name, also, symbols=symbols, family=tuple(other for other in family if other != name), **fields)
    return found


@cache
def option_purposes() -> dict[str, dict[str, str]]:
    """What each option of TRL is for and where to read more, by its name: ``what`` and ``see``."""
    entries = yaml.safe_load(OPTIONS.read_text(encoding="utf-8"))
    return {name: {"what": entry["what"], "see": entry["see"]} for entry in entries for name in entry["names"].split()}


def _options() -> dict[str, dict[str, Any]]:
    """What is said of each option: its purpose, and every row that the table has of it, those with a setting alone if there are any."""
    rows: dict[str, list[tuple[str, tuple[str, ...], str]]] = {}
    for section in SECTIONS:
        for option in options(section.name):
            for name in option.names:
                rows.setdefault(name, []).append((section.name, option.ours, option.note))
    for group in groups():
        for name in group.names:
            rows.setdefault(name, []).append(("arguments", (), group.sentence))
    inherited = {name for group in groups() for name in group.names}
    return {
        name: _of_rows(of_name) | option_purposes().get(name, {"what": INHERITED if name in inherited else ""})
        for name, of_name in rows.items()
    }


def _of_rows(rows: list[tuple[str, tuple[str, ...], str]]) -> dict[str, Any]:
    """The settings of all rows of an option, its releases, and the notes; where these differ, each says of what it is true."""
    also = tuple(_IN_RELEASE[section] for section, _, _ in rows if section in _IN_RELEASE)
    told = [row for row in rows if row[1]] or rows
    settings = tuple(dict.fromkeys(setting for _, ours, _ in told for setting in ours))
    by_note: dict[str, str] = {}
    for section, _, note in told:
        if note:
            by_note.setdefault(note, _SPOKEN_OF.get(section, "TRL 1.12"))
    alike = len({note for _, _, note in told}) == 1
    notes = " ".join(note if alike else f"{release}: {note}" for note, release in by_note.items())
    return {"also": also, "settings": settings, "note" if settings else "not_needed": notes}
