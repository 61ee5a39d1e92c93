"""Names of what ships with the project: ``bundled/world-policy`` instead of a path that differs on every machine."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.inputs.trained import model_of_run

ASSETS = Path(__file__).resolve().parents[2] / "assets"

BUNDLED = {
    "bundled/world-policy": "world/policy",
    "bundled/world-reward": "world/reward",
    "bundled/world-prompts": "world/prompts.jsonl",
    "bundled/world-prompts-heldout": "world/prompts_heldout.jsonl",
}
HELD_OUT = ("bundled/world-prompts-heldout",)
"""Prompts that nothing which ships with the project learned from."""
WRITTEN = {
    "demonstrations": ("bundled/world-reviews", "bundled/world-reviews-heldout"),
    "pairs": ("bundled/world-pairs", "bundled/world-pairs-heldout"),
}
"""Kind of examples -> the names of those that are no file: the review world writes them anew from its seeds when they are read."""


def resolve(name: str) -> str:
    """The path of a bundled name, or of the model that a run has trained (``RUN`` or ``RUN@STEP``); any other name unchanged."""
    path = bundled_path(name) or model_of_run(name)
    return name if path is None else str(path)


def bundled_path(name: str) -> Path | None:
    """Where a bundled name lies in this installation; None for any other name."""
    return ASSETS / BUNDLED[name] if name in BUNDLED else None
