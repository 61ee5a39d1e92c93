"""Ready lessons for a class: texts in Markdown with links to scenes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from rlhf_studio.lessons.kit.text import read_text

PLANS = ("hour", "double", "in_class")
FOLDER = Path(__file__).parent


@cache
def plans(language: str = "en") -> list[dict[str, Any]]:
    """Name, title and text (a tree, see :mod:`rlhf_studio.lessons.kit.text`) of each plan; in English where there is no other."""
    rows = []
    for name in PLANS:
        path = FOLDER / f"{name}.{language}.md"
        text = read_text((path if path.is_file() else FOLDER / f"{name}.en.md").read_text(encoding="utf-8"))
        rows.append({"name": name, "title": text.title, "blocks": text.introduction})
    return rows
