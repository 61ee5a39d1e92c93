"""Write what each lesson shows at its start (``python -m tools.prepared_numbers``), after a change of lessons, models or recordings."""

from __future__ import annotations

import json
from typing import Any

from rlhf_studio.lessons import answers, shelf


def start_of(lesson: str, language: str) -> dict[str, Any]:
    """What the page shows when the lesson is opened and everything has been loaded."""
    begun = answers.beginning(lesson, {}, language)
    for name, scene in begun["scenes"].items():
        if not scene["slow"] and scene["shown"] is None:
            values = {control["name"]: control["start"] for control in scene["controls"]}
            scene["shown"] = answers.computed(lesson, name, values, language)
    return begun


def main() -> None:
    shelf.PREPARED.mkdir(exist_ok=True)
    for entry in shelf.entries():
        for language in shelf.languages(entry.name):
            text = json.dumps(start_of(entry.name, language), allow_nan=False, separators=(",", ":"))
            (shelf.PREPARED / f"{entry.name}.{language}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
