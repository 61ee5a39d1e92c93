"""The settings of a run that waits to go on with others, and leaves the queue: it gets its old ones back."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.runs import studio
from rlhf_studio.runs.create import undo_replace
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.longer import waits_for_more_steps
from rlhf_studio.runs.reader import RunReader


def take_back(run_dir: Path, entry: studio.Entry) -> None:
    """Give a run that leaves the queue the settings that it had before it was queued, if it got others then.

    A run that cannot be read keeps those that it has. Raises StoreError when they cannot be written.
    """
    if _has_others(run_dir, entry):
        undo_replace(run_dir)


def _has_others(run_dir: Path, entry: studio.Entry) -> bool:
    try:
        reader = RunReader(run_dir)
        if entry.replaced:
            return reader.stored()[1] == entry.seq  # no engine has worked on it since
        return entry.mode == "resume" and waits_for_more_steps(reader, entry.seq)
    except StoreError:
        return False
