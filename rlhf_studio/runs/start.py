"""The three ways to start an engine on a prepared run folder, and the command line for each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

StartMode = Literal["train", "resume", "from-start"]
"""``train`` begins a new run, ``resume`` goes on from the newest checkpoint, ``from-start`` begins a recorded run again at step 0."""


def engine_arguments(run_dir: Path, mode: StartMode) -> list[str]:
    """What follows the Python interpreter on the command line: what the app runs, and what a person may run instead."""
    folder = str(Path(run_dir).resolve())  # an absolute path can never be taken for an option
    if mode == "train":
        return ["-m", "rlhf_studio", "train", folder]
    return ["-m", "rlhf_studio", "resume", folder, *(["--from-start"] if mode == "from-start" else [])]
