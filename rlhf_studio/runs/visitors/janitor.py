"""A thread of the app that holds visitors' runs to their time, and clears them away when it is over."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rlhf_studio.language import S_
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import NotRunning, StoreError
from rlhf_studio.runs.records import ALIVE, ENDED, RunStatus
from rlhf_studio.runs.visitors.limits import Limits
from rlhf_studio.runs.workspace import Workspace

logger = logging.getLogger(__name__)
TIME_LIMIT = S_("the time limit of visitors' runs")


class Janitor:
    """Stops and removes runs of visitors and students; never one of anybody else.

    Args:
        interval: seconds between two looks.
        now: the time in seconds since 1970.
    """

    def __init__(self, workspace: Workspace, limits: Limits, interval: float = 20.0, now: Callable[[], float] = time.time) -> None:
        self._workspace, self._limits, self._interval, self._now = workspace, limits, interval, now
        self._resting: set[str] = set()  # runs that were not at work at the last look
        self._began: dict[str, float] = {}  # when runs that had rested came to work again
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin in a daemon thread."""
        self._thread = threading.Thread(target=self._run, name="janitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval):
            try:
                self.look()
            except StoreError as error:
                logger.warning("Visitors' runs could not be looked after: %s", error)
            except Exception:  # a mistake in here must not end the thread: the disk would fill
                logger.exception("Looking after visitors' runs failed")

    def look(self) -> None:
        """One round: stop what has been at work for too long, remove what was kept long enough or takes too much room.

        Raises StoreError when the workspace cannot be read.
        """
        theirs = [run for run in self._workspace.runs() if run.starter.plays]
        self._note_resumed(theirs)
        for run in theirs:
            began = self._began.get(run.run_id, run.started_at)
            if run.state in ALIVE and run.stop_asked_age is None and self._since(began) > self._limits.seconds:
                self._end(run)
        ended = sorted((run for run in theirs if run.state in ENDED), key=_end_of)
        sizes = {run.run_id: size_of(self._workspace.run_dir(run.run_id)) for run in theirs}
        total = sum(sizes.values())
        for run in ended:  # the oldest first
            if self._since(_end_of(run)) > self._limits.hours * 3600 or total > self._limits.disk:
                self._remove(run)
                total -= sizes[run.run_id]

    def _note_resumed(self, runs: list[RunStatus]) -> None:
        """A run that is resumed has its time anew: it has waited in the queue anew."""
        at_work = {run.run_id for run in runs if run.state in ALIVE}
        self._began = {run: self._began.get(run, self._now()) for run in at_work & (self._resting | self._began.keys())}
        self._resting = {run.run_id for run in runs if run.started_at is not None} - at_work

    def _since(self, at: float | None) -> float:
        return 0.0 if at is None else self._now() - at

    def _end(self, run: RunStatus) -> None:
        try:
            send_command(self._workspace.run_dir(run.run_id), "stop", {"by": TIME_LIMIT})
        except NotRunning:
            return  # it ended meanwhile
        except StoreError as error:
            logger.warning("The run %s could not be stopped: %s", run.run_id, error)

    def _remove(self, run: RunStatus) -> None:
        try:
            self._workspace.delete(run.run_id)
        except StoreError as error:  # it was resumed meanwhile, or is being exported
            logger.warning("The run %s could not be removed: %s", run.run_id, error)


def _end_of(run: RunStatus) -> float:
    return run.ended_at or run.created_at


def size_of(folder: Path) -> int:
    """Bytes of all files of a folder; what goes away meanwhile counts nothing, and links are not followed."""
    total, waiting = 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return total
