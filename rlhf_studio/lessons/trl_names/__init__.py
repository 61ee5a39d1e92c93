"""What every name in the source of TRL's two PPO trainers means, and where it is here.

``identifiers.yaml`` lists the names (``tools/trl_identifiers.py`` says which count). The other files answer them; an option of TRL's
configuration is answered by the table of :mod:`rlhf_studio.from_trl`. Nothing here loads torch or TRL.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlhf_studio.from_trl.table import SECTIONS, groups, options

FOLDER = Path(__file__).parent
LIST = FOLDER / "identifiers.yaml"


@dataclass(frozen=True)
class NameAnswer:
    """What is known of one name.

    Attributes:
        name: as TRL's source has it.
        releases: in which it occurs, such as ``0.11.4``.
        kinds: what it is there: class, function, argument, attribute, constant, local, imported, metric.
        what: what it is and does in TRL; empty for an option, whose name says it.
        symbols: dotted names inside our package where the same is done.
        settings: dotted names of our settings, for an option.
        note: how it is here, in a sentence or two; may be empty.
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
    files = sorted(path for path in FOLDER.glob("*.yaml") if path != LIST)
    return tuple(entry for path in files for entry in yaml.safe_load(path.read_text(encoding="utf-8")))


@cache
def answers() -> dict[str, NameAnswer]:
    """The answer for each name that has one."""
    places: dict[str, list[tuple[str, str]]] = {}
    for release, kinds in identifiers().items():
        for kind, names in kinds.items():
            for name in names:
                places.setdefault(name, []).append((release, kind))

    def answer(name: str, **more: Any) -> NameAnswer:
        releases, kinds = (tuple(dict.fromkeys(part)) for part in zip(*places[name], strict=True))
        return NameAnswer(name, releases, kinds, **more)

    found = {name: answer(name, **fields) for name, fields in _options().items() if name in places}
    for entry in written_answers():
        fields = {key: str(entry.get(key, "")) for key in ("what", "note", "not_needed", "see")}
        fields_here = {"symbols": tuple(str(entry.get("here", "")).split()), **fields}
        family = tuple(str(entry["names"]).split())
        for name in family:
            if name in places:
                found[name] = answer(name, **fields_here, family=tuple(other for other in family if other != name))
    return found


def _options() -> dict[str, dict[str, Any]]:
    """What the table of options says of each of its names; where it says several things, the first that names a setting."""
    found: dict[str, dict[str, Any]] = {}
    rows = [(name, option.ours, option.note) for section in SECTIONS for option in options(section.name) for name in option.names]
    rows += [(name, (), group.sentence) for group in groups() for name in group.names]
    for name, ours, note in rows:
        if name not in found or (ours and not found[name]["settings"]):
            found[name] = {"what": "", "settings": ours, "note" if ours else "not_needed": note}
            found[name].setdefault("settings", ())
    return found
