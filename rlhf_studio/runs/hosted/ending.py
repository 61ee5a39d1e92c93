"""Ending all runs of a workspace with a checkpoint, because the machine is about to go."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from rlhf_studio.language import S_
from rlhf_studio.runs import liveness
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import NotRunning, StoreError
from rlhf_studio.runs.finding.folders import RunFolders

logger = logging.getLogger(__name__)
BY = S_("the host, which ends the app")
RESTARTED = S_("The {what} was restarted")  # also in ui/assets/live/header.js
_LOOK_SECONDS = 0.1


def end_runs(folders: RunFolders, seconds: float, what: str = "app") -> tuple[list[str], list[str]]:
    """Ask every engine to save and stop, and wait until it has. Returns (the runs that have ended, those still at work after ``seconds``).

    ``what`` the host ends, in a word. Each run records it as the cause of its stop, because no person asked for the stop. No engine is
    killed: an engine that needs longer goes on as long as the machine lets it. Nothing may start another run meanwhile. Raises StoreError
    when the workspace cannot be read.
    """
    stopping = [folder for folder in folders.folders() if _ask(folder, RESTARTED.format(what=what))]
    deadline = time.monotonic() + seconds
    while (left := [folder for folder in stopping if _at_work(folder)]) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return [folder.name for folder in stopping if folder not in left], [folder.name for folder in left]


def _ask(folder: Path, cause: str) -> bool:
    """Whether an engine of this run is at work, and has been asked to stop."""
    try:
        if not _at_work(folder):
            return False
        send_command(folder, "stop", {"by": BY, "cause": cause})
    except NotRunning:  # it ended meanwhile
        return False
    except StoreError as error:
        logger.warning("The run %s could not be asked to stop: %s", folder.name, error)
        return False
    return True


def _at_work(folder: Path) -> bool:
    return liveness.is_starting(folder) or liveness.is_alive(folder)
