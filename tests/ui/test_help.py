"""Help without a browser: every document is there, drawn, and leads where its links say; none of it is markup."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlhf_studio.config.bundled import DOCS
from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.kit.text import read_markdown
from rlhf_studio.ui.help.documents import ORDER, anchor_of, document, sections
from rlhf_studio.ui.help.page import help_shelf, help_text
from tests.ui.train_helpers import VIEWER

ROOT = Path(__file__).parents[2]
MOST_WORDS = 2_100
DRAWN = {"paragraph", "heading", "listing", "bullet_list", "ordered_list", "list_item", "table", "row", "header", "cell"}
INLINE = {"code", "strong", "em", "link"}


def pieces(tree: Any) -> Iterator[dict[str, Any]]:
    """Every block and inline piece, with those inside it."""
    if isinstance(tree, dict):
        yield tree
        tree = [tree.get("content", []), tree.get("items", [])]
    if isinstance(tree, list | tuple):
        for part in tree:
            yield from pieces(part)


def test_all_documents_are_shown_and_come_with_the_package() -> None:
    assert sorted(ORDER) == sorted(path.stem for path in DOCS.glob("*.md"))
    listed = help_shelf({}, VIEWER)["documents"]
    assert [entry["name"] for entry in listed] == list(ORDER) and all(entry["title"] for entry in listed)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["package-data"]["rlhf_studio.docs"] == ["*.md"]
    assert '"rlhf_studio.docs": "docs"' in (ROOT / "setup.py").read_text()


def test_every_piece_is_one_that_the_page_draws_and_every_link_leads_somewhere() -> None:
    anchors = {name: {block["anchor"] for block in document(name).blocks if "anchor" in block} for name in ORDER}
    scenes = {(entry.name, scene.name) for entry in shelf.entries() for scene in shelf.text_of(entry.name).scenes}
    wrong = []
    for name in ORDER:
        for piece in pieces(document(name).blocks):
            if piece["kind"] not in DRAWN | INLINE:
                wrong.append(f"{name}: {piece['kind']}")
            if piece["kind"] != "link":
                continue
            kind, _, rest = piece["to"].partition(":")
            place, _, part = rest.partition("#")
            leads = {
                "doc": place in anchors and (not part or part in anchors.get(place, ())),
                "lesson": (place, part) in scenes or (not part and place in {lesson for lesson, _ in scenes}),
                "tour": f"tour.{place}" in {entry.name for entry in shelf.entries(shelf=shelf.TOUR)},
                "https": True,
                "http": True,
            }
            if not leads.get(kind):
                wrong.append(f"{name}: {piece['to']}")
    assert wrong == []


def test_markup_in_a_document_stays_text() -> None:
    (block,) = read_markdown("Look: <img src=x onerror=alert(1)> and [this](javascript:alert(1)).")
    assert block["content"] == ["Look: <img src=x onerror=alert(1)> and [this](javascript:alert(1))."]


def test_anchors_are_those_of_github_and_a_document_has_its_sections() -> None:
    assert anchor_of("What you passed to PPOTrainer") == "what-you-passed-to-ppotrainer"
    assert anchor_of("TRL 0.11: PPOConfig with your own loop around step") == "trl-011-ppoconfig-with-your-own-loop-around-step"
    first, *others = sections("reward-models")
    assert (first.anchor, first.title) == ("", "Reward models")
    assert [section.anchor for section in others][:2] == ["what-is-trained", "how-its-texts-are-written"]


def test_a_document_that_there_is_not() -> None:
    for name in ("", "../README", "nothing", None, 5):
        assert "There is no document" in help_text({"document": name}, VIEWER)["error"]


def test_the_answers_to_frequent_questions_are_short_and_lead_on() -> None:
    assert len((DOCS / "faq.md").read_text().split()) <= MOST_WORDS
    _, *answers = sections("faq")
    without = [section.title for section in answers if not any(piece["kind"] == "link" for piece in pieces(section.blocks))]
    assert without == ["Does it send anything anywhere?"]
