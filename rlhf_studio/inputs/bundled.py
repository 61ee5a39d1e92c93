"""Names of what ships with the project: ``bundled/world-policy`` instead of a path that differs on every machine."""

from __future__ import annotations

from pathlib import Path

ASSETS = Path(__file__).resolve().parents[2] / "assets"

BUNDLED = {
    "bundled/world-policy": "world/policy",
    "bundled/world-reward": "world/reward",
    "bundled/world-prompts": "world/prompts.jsonl",
    "bundled/world-prompts-heldout": "world/prompts_heldout.jsonl",
}
WRITTEN = {
    "demonstrations": ("bundled/world-reviews", "bundled/world-reviews-heldout"),
    "pairs": ("bundled/world-pairs", "bundled/world-pairs-heldout"),
}
"""Kind of examples -> the names of those that are no file: the review world writes them anew from its seeds when they are read."""


def resolve(name: str) -> str:
    """The path of a bundled name; any other name unchanged."""
    return str(ASSETS / BUNDLED[name]) if name in BUNDLED else name
