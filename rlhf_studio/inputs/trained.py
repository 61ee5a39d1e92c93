"""What a run has trained, named by the run: its folder, perhaps with @ and a step, stands for the model in a checkpoint or snapshot."""

from __future__ import annotations

import re
from pathlib import Path

KINDS = ("policy", "reward_model")
"""The folders that a checkpoint may hold its model in."""
_STEP = re.compile(r"step-([0-9]{6,9})")
_PLACES = ("checkpoints", "snapshots")


def model_of_run(name: str) -> Path | None:
    """The model's folder that ``RUN`` (its newest checkpoint) or ``RUN@STEP`` names; None for any other name.

    Only whole checkpoints count, which have their manifest. A run without one gives the run's folder, which nothing can be loaded from.
    """
    place, at, wanted = name.rpartition("@")
    run = Path(place if at and wanted.isdecimal() else name)
    if not ((run / "run.db").is_file() and (run / "config.yaml").is_file()):
        return None
    step = int(wanted) if at and run == Path(place) else None
    found = [folder for folder in _kept(run) if step is None or _step_of(folder) == step]
    if step is None:
        found = [folder for folder in found if folder.parent.name == "checkpoints"]
    models = [folder / kind for folder in sorted(found, key=_step_of) for kind in KINDS if (folder / kind).is_dir()]
    return models[-1] if models else run


def run_of_model(folder: Path) -> tuple[Path, int] | None:
    """The run's folder and the step that a model's folder inside a checkpoint or snapshot belongs to; None for any other folder."""
    resolved = folder.resolve()
    kept, place, run = resolved.parent, resolved.parent.parent, resolved.parent.parent.parent
    if resolved.name in KINDS and place.name in _PLACES and _STEP.fullmatch(kept.name) and (run / "run.db").is_file():
        return run, _step_of(kept)
    return None


def _kept(run: Path) -> list[Path]:
    folders = [folder for place in _PLACES for folder in (run / place).glob("step-*") if _STEP.fullmatch(folder.name)]
    return [folder for folder in folders if (folder / "manifest.json").is_file()]


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))
