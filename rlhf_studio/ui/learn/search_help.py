"""What the search finds outside the lessons: sections of the documents, every setting, every kind of reward, every check of the doctor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rlhf_studio.analysis.doctor import checks  # noqa: F401  (registers the checks)
from rlhf_studio.analysis.doctor.check import CHECKS
from rlhf_studio.config import STAGES
from rlhf_studio.ui.form import SECTION_TITLES, describe_form
from rlhf_studio.ui.help.documents import ORDER, anchor_of, plain_text, sections
from rlhf_studio.ui.learn.search_places import OTHER_WORDS

MADE = ("settings", "doctor")
"""Documents that list what is found by itself: of these only the titles of sections are found."""
REWARDS = "reward.components"


class Row(NamedTuple):
    """As :class:`~rlhf_studio.ui.learn.search.Findable`, in its order."""

    kind: str
    title: str
    text: str
    to: dict[str, str]
    where: str = ""
    other: str = ""


def rows() -> Iterator[Row]:
    """All of them."""
    for name in ORDER:
        yield from _of_document(name)
    known: set[str] = set()
    for stage in STAGES:
        form = describe_form(stage=stage)
        for section in form["sections"]:
            for field in section["fields"]:
                if field["name"] not in known:
                    known.add(field["name"])
                    to = _to_field(field["name"]) if stage == "ppo" else to_document("settings", anchor_of(f"{stage}: {section['name']}"))
                    text = f"{field['name']} {field['help']}"
                    yield Row("setting", field["title"], text, to, SECTION_TITLES[section["name"]], _other(field["name"]))
        for kind in form["components"] if stage == "ppo" else ():
            fields = " ".join(f"{field['title']} {field['name']}" for field in kind["fields"])
            yield Row("setting", kind["title"], f"{kind['kind']} {kind['help']}", _to_field(REWARDS), "Kind of reward", fields)
    for check in CHECKS.values():
        to = to_document("doctor", anchor_of(check.family))
        yield Row("check", check.title, f"{check.name} {check.rule} {check.cause} {check.advice}", to, check.family, _other(check.name))


def to_document(name: str, anchor: str = "") -> dict[str, str]:
    """The address's parameters of a document on the Learn page, and of one of its sections."""
    return {"place": "help", "show": name, **({"scene": anchor} if anchor else {})}


def _to_field(name: str) -> dict[str, str]:
    return {"tab": "train", "field": name}


def _of_document(name: str) -> Iterator[Row]:
    for section in sections(name):
        text: Any = "" if name in MADE and section.anchor else plain_text(section.blocks)
        place = f"docs/{name}.md" + (f"#{section.anchor}" if section.anchor else "")
        yield Row("document", section.title, text, to_document(name, section.anchor), section.document.title, _other(place))


def _other(place: str) -> str:
    return OTHER_WORDS.get(place, "")
