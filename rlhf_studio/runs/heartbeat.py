"""The engine's heartbeat, and whether the run folder that it is written into is still the engine's own."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path

from rlhf_studio.runs import paths, schema
from rlhf_studio.runs.errors import RunGone, StoreError


class Place:
    """Whether the file at a path is still the file that was there at first: a run folder may be deleted, moved or replaced while
    its engine works.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def is_ours(self) -> bool:
        """Whether the file at the path is the one that was there at first."""
        return self._file is not None and self._look() == self._file


def _beat(connection: sqlite3.Connection, path: Path) -> None:
    """Store the time of the engine's last heartbeat. Raises StoreError."""
    with schema.transaction(connection, path):
        connection.execute("UPDATE heartbeat SET at = ?", (time.time(),))


class Heartbeat:
    """A thread of the engine that stores the time once per interval as a sign that the process runs, over a connection of its own.

    It does not raise: ``problem`` holds the last failure, or None. A disk that fails here fails in the writer too, and there
    the engine gets the error. When the run folder is not where it was any more, it ends.
    """

    def __init__(self, run_dir: Path, interval: float = 1.0):
        self.path = Path(run_dir).resolve() / paths.DATABASE
        self.interval = interval
        self.problem: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; the first beat comes at once."""
        self._thread.start()

    def stop(self) -> None:
        """End and wait for the thread. Do this before the writer is closed."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        place: Place | None = None
        while True:
            if place is not None and not place.is_ours():
                self.problem = RunGone(self.path.parent)
                break
            try:
                if connection is None:
                    connection = schema.connect(self.path)
                    place = Place(self.path)
                    connection.execute("PRAGMA synchronous = NORMAL")  # a lost beat is no loss: no need to wait for the disk
                _beat(connection, self.path)
                self.problem = None
            except (StoreError, sqlite3.Error) as error:
                self.problem = error
            if self._stop.wait(self.interval):
                break
        if connection is not None:
            connection.close()

    def __enter__(self) -> Heartbeat:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
